// SPDX-License-Identifier: Apache-2.0
// Text from models: what `fullshard generate` does, as calls.
#pragma once

#include "fullshard/generation/cached_language_model.h"
#include "fullshard/generation/generate.h"
#include "fullshard/generation/generation_config.h"
#include "fullshard/generation/options.h"
#include "fullshard/generation/prompt_file.h"
#include "fullshard/generation/sequence.h"
#include "fullshard/generation/token_model.h"
#include "fullshard/text/chat/chat_template.h"
