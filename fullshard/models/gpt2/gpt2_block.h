// SPDX-License-Identifier: Apache-2.0
// One layer of GPT-2: attention and feed-forward, each after a norm and added to its input.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>

#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/gpt2/gpt2_config.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/attention/packed_documents.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

class Gpt2AttentionImpl : public torch::nn::Module {
 public:
  Gpt2AttentionImpl(const Gpt2Config& config, int64_t layer);
  // hidden and what attention to norm(hidden) adds to it.
  at::Tensor forward(const at::Tensor& hidden, const NormTerms& norm,
                     const at::Tensor& padding_mask, const ops::SharedPackedDocuments& documents);
  at::Tensor decode(const at::Tensor& hidden, const NormTerms& norm, CachedPass& pass);

 private:
  int64_t num_heads_;
  double scale_;
  double attention_dropout_;
  double residual_dropout_;
  Linear c_attn_;  // query, key and value in one
  Linear c_proj_;
};
TORCH_MODULE(Gpt2Attention);

class Gpt2FeedForwardImpl : public torch::nn::Module {
 public:
  explicit Gpt2FeedForwardImpl(const Gpt2Config& config);
  // Likewise.
  at::Tensor forward(const at::Tensor& hidden, const NormTerms& norm, ops::ResultUse use);
  at::Tensor decode(const at::Tensor& hidden, const NormTerms& norm);

 private:
  Activation activation_;
  double dropout_;
  Linear c_fc_;
  Linear c_proj_;
};
TORCH_MODULE(Gpt2FeedForward);

// hidden [batch, sequence, width]; the mask [batch, sequence] may be undefined, and documents need
// not be packed. With `cached` the
// tokens follow those of its cache, and the mask is not looked at.
class GPT2BlockImpl : public Unit {
 public:
  GPT2BlockImpl(const Gpt2Config& config, int64_t layer);
  at::Tensor forward(const at::Tensor& hidden, const at::Tensor& padding_mask,
                     CachedPass* cached = nullptr,
                     const ops::SharedPackedDocuments& documents = nullptr);

 private:
  at::Tensor decode(const at::Tensor& hidden, CachedPass& pass);

  LayerNorm ln_1_;
  Gpt2Attention attn_;
  LayerNorm ln_2_;
  Gpt2FeedForward mlp_;
};
FULLSHARD_UNIT(GPT2Block);

}  // namespace fullshard::models
