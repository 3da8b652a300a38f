// SPDX-License-Identifier: Apache-2.0
// The table of token embeddings, which may also serve as the head.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/nn/unit.h"
#include "fullshard/ops/embedding.h"

namespace fullshard::models {

struct TokenTableOptions {
  int64_t vocabulary = 0;
  int64_t width = 0;
  std::optional<int64_t> padding_token{};  // its row gets no gradient as an input
  bool serves_as_head = false;
};

// An Embedding below `parent`, with its parameter `name`.weight. One that does not serve as the
// head is marked as VocabularyPart::embedding, so that it can be a unit of its own. One that does
// is plain, and belongs to the unit around it: the head reads its weight, and its gradient collects
// from the first step of a backward to the last.
class TokenTable {
 public:
  TokenTable() = default;  // none yet
  TokenTable(torch::nn::Module& parent, const std::string& name, const TokenTableOptions& options);

  at::Tensor operator()(const at::Tensor& tokens);
  // For a table that serves as the head; one that is a unit shows it in its own forward only.
  const at::Tensor& weight() const;

 private:
  Embedding plain_ = nullptr;
  Wrap<Embedding> marked_ = nullptr;
};

}  // namespace fullshard::models
