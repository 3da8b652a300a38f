// SPDX-License-Identifier: Apache-2.0
// Text to tokens, data sets, batches.
#pragma once

#include "fullshard/data/batch.h"
#include "fullshard/data/dataset.h"
#include "fullshard/data/loader.h"
#include "fullshard/data/open_data.h"
#include "fullshard/text/pipeline/tokenizer.h"
