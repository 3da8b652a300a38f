// SPDX-License-Identifier: Apache-2.0
// What a step computes for a token where not all of a model is trained.
#pragma once

#include <cstdint>

#include "fullshard/models/common/language_model.h"

namespace fullshard::train {

// LanguageModel::flops_per_token, without the products that would be gradients of frozen layers,
// and with those of adapters.
double trained_flops_per_token(const LanguageModel& model, int64_t sequence_length);

}  // namespace fullshard::train
