// SPDX-License-Identifier: Apache-2.0
// Ready models by folder or name, and the operators that they are made of.
#pragma once

#include "fullshard/models/common/language_model.h"
#include "fullshard/models/lora/adapter_config.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/models/lora/lora_options.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/ops/activation.h"
#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/embedding.h"
#include "fullshard/ops/loss/cross_entropy.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/rotary.h"
