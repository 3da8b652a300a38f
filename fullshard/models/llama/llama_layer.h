// SPDX-License-Identifier: Apache-2.0
// One layer of the Llama family: attention and a gated feed-forward, each after a norm and added to
// its input.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <memory>

#include "fullshard/models/common/key_value_cache.h"
#include "fullshard/models/llama/llama_config.h"
#include "fullshard/nn/unit.h"
#include "fullshard/ops/attention/packed_documents.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"
#include "fullshard/ops/rotary.h"

namespace fullshard::models {

// By pointer: the table is fp32 whatever dtype the arguments of a unit are cast to.
using SharedRotaryTable = std::shared_ptr<const RotaryTable>;

class LlamaAttentionImpl : public torch::nn::Module {
 public:
  LlamaAttentionImpl(const LlamaConfig& config, int64_t layer);
  // hidden and what attention to norm(hidden) adds to it.
  at::Tensor forward(const at::Tensor& hidden, const NormTerms& norm, const RotaryTable& rotary,
                     const at::Tensor& padding_mask, const ops::SharedPackedDocuments& documents);
  at::Tensor decode(const at::Tensor& hidden, const NormTerms& norm, CachedPass& pass);

 private:
  int64_t num_heads_;
  int64_t num_kv_heads_;
  int64_t window_;
  double dropout_;
  // Registered side by side: in a flat buffer they are one matrix.
  Linear q_proj_ = nullptr;
  Linear k_proj_ = nullptr;
  Linear v_proj_ = nullptr;
  Linear o_proj_ = nullptr;
};
TORCH_MODULE(LlamaAttention);

class LlamaFeedForwardImpl : public torch::nn::Module {
 public:
  explicit LlamaFeedForwardImpl(const LlamaConfig& config);
  // Likewise.
  at::Tensor forward(const at::Tensor& hidden, const NormTerms& norm, ops::ResultUse use);
  at::Tensor decode(const at::Tensor& hidden, const NormTerms& norm);

 private:
  Activation activation_;
  Linear gate_proj_;
  Linear up_proj_;
  Linear down_proj_;
};
TORCH_MODULE(LlamaFeedForward);

// hidden [batch, sequence, width]; the mask [batch, sequence] may be undefined, and documents need
// not be packed. With `cached` the
// tokens follow those of its cache, and neither table nor mask is looked at.
class LlamaLayer : public Unit {
 public:
  LlamaLayer(const LlamaConfig& config, int64_t layer);
  virtual at::Tensor forward(const at::Tensor& hidden, const SharedRotaryTable& rotary,
                             const at::Tensor& padding_mask, CachedPass* cached = nullptr,
                             const ops::SharedPackedDocuments& documents = nullptr);

 private:
  at::Tensor decode(const at::Tensor& hidden, CachedPass& pass);

  LlamaAttention self_attn_;
  LlamaFeedForward mlp_;
  RmsNorm input_layernorm_;
  RmsNorm post_attention_layernorm_;
};

// The same layer under the name that each family's users wrap by.
struct LlamaDecoderLayerImpl : LlamaLayer {
  using LlamaLayer::LlamaLayer;
};
FULLSHARD_UNIT(LlamaDecoderLayer);
struct MistralDecoderLayerImpl : LlamaLayer {
  using LlamaLayer::LlamaLayer;
};
FULLSHARD_UNIT(MistralDecoderLayer);
struct Qwen2DecoderLayerImpl : LlamaLayer {
  using LlamaLayer::LlamaLayer;
};
FULLSHARD_UNIT(Qwen2DecoderLayer);

// A call through the pointer runs the hooks of the unit.
std::shared_ptr<LlamaLayer> make_llama_layer(const LlamaConfig& config, int64_t layer);

}  // namespace fullshard::models
