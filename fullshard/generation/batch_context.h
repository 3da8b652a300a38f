// SPDX-License-Identifier: Apache-2.0
// What both ways of generating, token by token and by beams, are given for one batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "fullshard/generation/generate.h"

namespace fullshard::generation {

struct BatchContext {
  TokenModel& model;
  std::span<const GeneratePrompt> prompts;
  const GenerateOptions& options;
  const Tokenizer* tokenizer;  // may be null
  const GenerateCallbacks& callbacks;

  // That a prompt may be given: less than asked for where the model's positions end.
  int64_t max_new_tokens(size_t prompt) const;
  // Reads the prompts.
  at::Tensor begin() const;
  at::Tensor next(const std::vector<int64_t>& tokens) const;
  bool is_eos(int64_t token) const;
};

// Scores on the host: [rows, vocabulary] of fp32, contiguous.
at::Tensor host_scores(const at::Tensor& logits);
std::span<float> row_of(const at::Tensor& scores, size_t row);

// Sequences prompt by prompt.
std::vector<GeneratedSequence> generate_tokens(const BatchContext& batch);
std::vector<GeneratedSequence> search_beams(const BatchContext& batch);

}  // namespace fullshard::generation
