// SPDX-License-Identifier: Apache-2.0
// What all BERT models share: embeddings and blocks.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <vector>

#include "fullshard/models/bert/bert_config.h"
#include "fullshard/models/bert/bert_layer.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/token_table.h"
#include "fullshard/models/common/unpadded.h"
#include "fullshard/ops/embedding.h"
#include "fullshard/ops/norm.h"

namespace fullshard::models {

// No module itself: it hangs "embeddings" and "encoder" below `parent`, which is the root of a bare
// model and "bert" below a head. The root's forward uses the embeddings, so they are the root's;
// the words can be a unit of their own where they do not serve as the head.
class BertEncoder {
 public:
  BertEncoder(torch::nn::Module& parent, const BertConfig& config);

  // [batch, sequence, width] of the last block.
  at::Tensor forward(const ModelInputs& inputs, bool is_training);

  const at::Tensor& word_embeddings() const { return words_.weight(); }

 private:
  at::Tensor embed(const ModelInputs& inputs, const SharedUnpadded& layout);
  at::Tensor token_types_of(const ModelInputs& inputs) const;

  TokenTable words_;
  Embedding positions_ = nullptr;
  Embedding token_types_ = nullptr;
  LayerNorm norm_ = nullptr;
  std::vector<BertLayer> layers_;
  int64_t vocabulary_, max_positions_, num_token_types_;
  double dropout_;
};

}  // namespace fullshard::models
