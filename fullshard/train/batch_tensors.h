// SPDX-License-Identifier: Apache-2.0
// Rows of token ids as the tensors that a model takes.
#pragma once

#include "fullshard/data/batch.h"
#include "fullshard/models/common/language_model.h"

namespace fullshard {

// On the CPU the tensors look at the batch's own memory: it outlives them.
ModelInputs tensors_of(TokenBatch& batch, at::Device device);

// The labels that the model's mean loss is over: a decoder that moves labels by one itself never
// sees the first of each row.
int64_t counted_labels(const TokenBatch& batch, const LanguageModel& model);

}  // namespace fullshard
