// SPDX-License-Identifier: Apache-2.0
// What passes of a model that is not trained take in addition to its weights: the passes are run
// with tensors that have no memory. For `generate` and `eval`, which place weights by it.
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
  int64_t activations = 0;  // at the peak, with the logits
};

// The device and the dtype that the model computes with.
struct PassTerms {
  at::Device device = at::kCPU;
  std::optional<at::ScalarType> dtype = {};  // absent: the model's own
};

// `model` is deferred (nn/deferred.h) and is used up. Counts the device only, not host
// memory next to a GPU.
PassBytes generation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                           const GenerationBatch& batch);

// The same for one micro-batch's loss.
int64_t evaluation_bytes(const std::shared_ptr<LanguageModel>& model, const PassTerms& terms,
                         int64_t micro_batch, int64_t sequence_length, int64_t target_length);

}  // namespace fullshard::planning
