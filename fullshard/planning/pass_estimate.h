// SPDX-License-Identifier: Apache-2.0
// What passes of a model that is not trained take beside its weights: the passes themselves, made
// of tensors that have no memory. For `generate` and `eval`, which place weights by it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "fullshard/models/common/language_model.h"

namespace fullshard::planning {

// One batch of prompts, all of them as long as the longest.
struct GenerationBatch {
  int64_t num_prompts = 1;
  int64_t rows_per_prompt = 1;  // beams, or sequences that are returned
  int64_t prompt_tokens = 1;
  int64_t new_tokens = 1;
  int64_t prefill_tokens = 512;
};

struct PassBytes {
  int64_t cache = 0;        // keys and values
  int64_t activations = 0;  // at the fullest moment, with the logits
};

// Where and in what the model computes.
struct PassTerms {
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> dtype = {};  // absent: the model's own
};

// `model` is deferred (nn/deferred.h) and is used up. On the device; what lies in host memory
// beside a GPU does not count.
PassBytes generation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                           const GenerationBatch& batch);

// Of one micro-batch's loss.
int64_t evaluation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                         int64_t micro_batch, int64_t sequence_length, int64_t target_length);

}  // namespace fullshard::planning
