// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_block.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/where.h>

#include <limits>
#include <vector>

#include "fullshard/models/common/module_tree.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::models {

at::Tensor within_half_range(const at::Tensor& hidden) {
  if (hidden.scalar_type() != at::kHalf) return hidden;
  const double most = static_cast<float>(std::numeric_limits<at::Half>::max());
  const auto limit = at::where(hidden.isinf().any(), most - 1000, most).to(at::kHalf);
  return at::clamp(hidden, -limit, limit);
}

T5FeedForwardImpl::T5FeedForwardImpl(const T5Config& config)
    : activation_(config.activation), dropout_(config.dropout) {
  auto& products = add_folder(*this, "DenseReluDense");
  const int64_t inner = config.feed_forward_width;
  if (config.is_gated) {
    gate_ = products.register_module("wi_0", t5_linear(config.width, inner));
    up_ = products.register_module("wi_1", t5_linear(config.width, inner));
  } else {
    gate_ = products.register_module("wi", t5_linear(config.width, inner));
  }
  down_ = products.register_module("wo", t5_linear(inner, config.width));
  norm_ = register_module("layer_norm", RmsNorm(config.width, config.epsilon));
}

at::Tensor T5FeedForwardImpl::forward(const at::Tensor& hidden) {
  std::vector layers{gate_->terms()};
  if (!up_.is_empty()) layers.push_back(up_->terms());
  const auto rows = ops::norm_projection(hidden, norm_->terms(), layers);
  const double dropout = is_training() ? dropout_ : 0;
  if (dropout == 0) {
    return ops::activated_projection(rows.projected, activation_, down_->terms(), rows.residual);
  }
  const auto branch = ops::activated_projection(rows.projected, activation_, down_->terms(), {},
                                                ops::ResultUse::values, dropout);
  return ops::dropped(branch, dropout, rows.residual);
}

T5BlockImpl::T5BlockImpl(const T5Config& config, T5Part part, bool is_first) {
  const bool decodes = part == T5Part::decoder;
  auto& layers = add_folder(*this, "layer");
  self_attention_ = layers.register_module(
      "0", T5AttentionLayer(config, "SelfAttention", /*is_causal=*/decodes, is_first));
  if (decodes) {
    cross_attention_ = layers.register_module(
        "1", T5AttentionLayer(config, "EncDecAttention", /*is_causal=*/false, /*has_table=*/false));
  }
  feed_forward_ = layers.register_module(decodes ? "2" : "1", T5FeedForward(config));
}

T5BlockOutput T5BlockImpl::forward(T5Sequence own, at::Tensor position_bias, T5Sequence encoded,
                                   CachedPass* cached) {
  if (cached != nullptr) return {.hidden = decode(own.hidden, *cached)};
  T5BlockOutput output;
  if (!position_bias.defined()) {
    const int64_t length = own.layout ? own.layout->num_columns : own.hidden.size(1);
    const auto bias = self_attention_->position_bias(length).to(own.hidden.scalar_type());
    output.position_bias = position_bias = ops::bias_hiding_keys(bias, own.mask);
  }
  own.hidden = within_half_range(
      self_attention_(T5AttentionInput{.own = own, .position_bias = position_bias}));
  if (!cross_attention_.is_empty()) {
    own.hidden =
        within_half_range(cross_attention_(T5AttentionInput{.own = own, .source = encoded}));
  }
  output.hidden = within_half_range(feed_forward_(own.hidden));
  return output;
}

}  // namespace fullshard::models
