// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/llama_layer.h"

#include "fullshard/models/common/use_of_result.h"
#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::models {
namespace {

Linear linear_layer(int64_t from, int64_t to, bool bias) {
  return Linear(torch::nn::LinearOptions(from, to).bias(bias));
}

}  // namespace

LlamaAttentionImpl::LlamaAttentionImpl(const LlamaConfig& config, int64_t layer)
    : num_heads_(config.num_heads),
      num_kv_heads_(config.num_kv_heads),
      window_(config.windows.at(layer)),
      dropout_(config.attention_dropout) {
  const int64_t query_width = config.num_heads * config.head_width;
  const int64_t key_width = config.num_kv_heads * config.head_width;
  const bool bias = config.query_bias;
  q_proj_ = register_module("q_proj", linear_layer(config.width, query_width, bias));
  k_proj_ = register_module("k_proj", linear_layer(config.width, key_width, bias));
  v_proj_ = register_module("v_proj", linear_layer(config.width, key_width, bias));
  o_proj_ = register_module("o_proj", linear_layer(query_width, config.width, config.output_bias));
}

at::Tensor LlamaAttentionImpl::forward(const at::Tensor& hidden, const NormTerms& norm,
                                       const RotaryTable& rotary, const at::Tensor& padding_mask,
                                       const ops::SharedPackedDocuments& documents) {
  const auto rows =
      ops::norm_projection(hidden, norm, {q_proj_->terms(), k_proj_->terms(), v_proj_->terms()});
  AttentionOptions options;
  options.causal = true;
  options.window = window_;
  options.dropout = is_training() ? dropout_ : 0;
  options.padding_mask = padding_mask;
  options.documents = documents;
  const auto mixed =
      ops::self_attention(rows.projected, {num_heads_, num_kv_heads_}, &rotary, options);
  return linear(mixed, o_proj_->terms(), rows.residual);
}

LlamaFeedForwardImpl::LlamaFeedForwardImpl(const LlamaConfig& config)
    : activation_(config.activation),
      gate_proj_(register_module("gate_proj",
                                 linear_layer(config.width, config.inner_width, config.mlp_bias))),
      up_proj_(register_module("up_proj",
                               linear_layer(config.width, config.inner_width, config.mlp_bias))),
      down_proj_(register_module(
          "down_proj", linear_layer(config.inner_width, config.width, config.mlp_bias))) {}

at::Tensor LlamaFeedForwardImpl::forward(const at::Tensor& hidden, const NormTerms& norm,
                                         ops::ResultUse use) {
  const auto rows = ops::norm_projection(hidden, norm, {gate_proj_->terms(), up_proj_->terms()});
  return ops::activated_projection(rows.projected, activation_, down_proj_->terms(), rows.residual,
                                   use);
}

LlamaLayer::LlamaLayer(const LlamaConfig& config, int64_t layer)
    : self_attn_(register_module("self_attn", LlamaAttention(config, layer))),
      mlp_(register_module("mlp", LlamaFeedForward(config))),
      input_layernorm_(
          register_module("input_layernorm", RmsNorm(config.width, config.norm_epsilon))),
      post_attention_layernorm_(register_module("post_attention_layernorm",
                                                RmsNorm(config.width, config.norm_epsilon))) {}

at::Tensor LlamaLayer::forward(const at::Tensor& hidden, const SharedRotaryTable& rotary,
                               const at::Tensor& padding_mask, CachedPass* cached,
                               const ops::SharedPackedDocuments& documents) {
  if (cached != nullptr) return decode(hidden, *cached);
  const auto attended =
      self_attn_(hidden, input_layernorm_->terms(), *rotary, padding_mask, documents);
  return mlp_(attended, post_attention_layernorm_->terms(), use_of_result(*this));
}

std::shared_ptr<LlamaLayer> make_llama_layer(const LlamaConfig& config, int64_t layer) {
  switch (config.family) {
    case LlamaFamily::mistral:
      return MistralDecoderLayer(config, layer).ptr();
    case LlamaFamily::qwen2:
      return Qwen2DecoderLayer(config, layer).ptr();
    case LlamaFamily::llama:
      break;
  }
  return LlamaDecoderLayer(config, layer).ptr();
}

}  // namespace fullshard::models
