// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_attention.h"

#include <vector>

#include "fullshard/ops/attention/self_attention.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/products/norm_projection.h"
#include "fullshard/ops/products/shared_rows.h"

namespace fullshard::models {

Linear t5_linear(int64_t input_width, int64_t output_width) {
  return Linear(torch::nn::LinearOptions(input_width, output_width).bias(false));
}

T5AttentionImpl::T5AttentionImpl(const T5Config& config, bool is_causal, bool has_table)
    : query_(register_module("q", t5_linear(config.width, config.inner_width()))),
      key_(register_module("k", t5_linear(config.width, config.inner_width()))),
      value_(register_module("v", t5_linear(config.width, config.inner_width()))),
      output_(register_module("o", t5_linear(config.inner_width(), config.width))),
      positions_{.is_bidirectional = !is_causal,
                 .num_buckets = config.num_buckets,
                 .max_distance = config.max_distance},
      num_heads_(config.num_heads),
      is_causal_(is_causal),
      dropout_(config.dropout) {
  if (!has_table) return;
  table_ =
      register_module("relative_attention_bias", Embedding(config.num_buckets, config.num_heads));
}

at::Tensor T5AttentionImpl::heads_of(const at::Tensor& tensor) const {
  return tensor.unflatten(-1, {num_heads_, tensor.size(-1) / num_heads_});
}

at::Tensor T5AttentionImpl::position_bias(int64_t length) const {
  return relative_position_bias(table_->weight, length, positions_);
}

at::Tensor T5AttentionImpl::cross_attention(const at::Tensor& query, const T5Sequence& source,
                                            const AttentionOptions& options) {
  const auto made = ops::shared_rows(source.hidden, {key_->terms(), value_->terms()});
  const auto heads_of_part = [&](size_t part) {
    return heads_of(with_padding(made.parts[part], source.layout));
  };
  return attention(heads_of(query), heads_of_part(0), heads_of_part(1), options).flatten(-2);
}

at::Tensor T5AttentionImpl::forward(const T5AttentionInput& input, const NormTerms& norm) {
  const double dropout = is_training() ? dropout_ : 0;
  AttentionOptions options;
  options.causal = is_causal_;
  options.scale = 1;
  options.dropout = dropout;
  const auto& [own, source, position_bias] = input;
  const bool is_cross = source.hidden.defined();
  if (is_cross) options.padding_mask = source.mask;
  options.bias = position_bias;
  std::vector layers{query_->terms()};
  if (!is_cross) layers.insert(layers.end(), {key_->terms(), value_->terms()});
  const auto rows = ops::norm_projection(own.hidden, norm, layers);
  const auto projected = with_padding(rows.projected, own.layout);
  const auto mixed =
      is_cross ? cross_attention(projected.first(), source, options)
               : ops::self_attention(projected, {num_heads_, num_heads_}, nullptr, options);
  const auto seen = without_padding(mixed, own.layout);
  if (dropout == 0) return linear(seen, output_->terms(), rows.residual);
  return ops::dropped(output_(seen), dropout, rows.residual);
}

T5AttentionLayerImpl::T5AttentionLayerImpl(const T5Config& config, const char* name, bool is_causal,
                                           bool has_table)
    : attention_(register_module(name, T5Attention(config, is_causal, has_table))),
      norm_(register_module("layer_norm", RmsNorm(config.width, config.epsilon))) {}

}  // namespace fullshard::models
