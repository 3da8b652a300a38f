// SPDX-License-Identifier: Apache-2.0
// One block of BERT: attention, then a feed-forward part; each is added to its input and normalised
// afterwards.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "fullshard/models/bert/bert_config.h"
#include "fullshard/models/common/unpadded.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

// What a branch made of its input, and that input for the sum at its end (ops::SharedRows).
struct BertBranch {
  at::Tensor result, residual;
};

class BertSelfAttentionImpl : public torch::nn::Module {
 public:
  explicit BertSelfAttentionImpl(const BertConfig& config);
  // hidden [batch, sequence, width]; attention_mask [batch, sequence] or undefined. With a layout
  // hidden has no padding.
  BertBranch forward(const at::Tensor& hidden, const at::Tensor& attention_mask,
                     const SharedUnpadded& layout);

 private:
  Linear query_, key_, value_;
  int64_t num_heads_;
  double dropout_;
};
TORCH_MODULE(BertSelfAttention);

// The end of both halves of a block: LayerNorm(dropout(dense(input)) + residual).
class BertOutputImpl : public torch::nn::Module {
 public:
  BertOutputImpl(int64_t input_width, const BertConfig& config);
  at::Tensor forward(const at::Tensor& input, const at::Tensor& residual);
  // Of activated input.
  at::Tensor forward_activated(const at::Tensor& input, Activation activation,
                               const at::Tensor& residual);

 private:
  double dropout() const { return is_training() ? dropout_ : 0; }
  at::Tensor finish(const at::Tensor& product, const at::Tensor& residual);

  Linear dense_;
  LayerNorm norm_;
  double dropout_;
};
TORCH_MODULE(BertOutput);

class BertLayerImpl : public Unit {
 public:
  explicit BertLayerImpl(const BertConfig& config);
  at::Tensor forward(at::Tensor hidden, at::Tensor attention_mask, SharedUnpadded layout = {});

 private:
  BertSelfAttention attention_ = nullptr;
  BertOutput attention_output_ = nullptr;
  Linear intermediate_ = nullptr;
  BertOutput output_ = nullptr;
  Activation activation_;
};
FULLSHARD_UNIT(BertLayer);

}  // namespace fullshard::models
