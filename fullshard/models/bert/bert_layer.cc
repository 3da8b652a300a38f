// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_layer.h"

#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/module_tree.h"
#include "fullshard/ops/attention/attention.h"
#include "fullshard/ops/dropout.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/shared_rows.h"

namespace fullshard::models {

BertSelfAttentionImpl::BertSelfAttentionImpl(const BertConfig& config)
    : query_(register_module("query", Linear(config.width, config.width))),
      key_(register_module("key", Linear(config.width, config.width))),
      value_(register_module("value", Linear(config.width, config.width))),
      num_heads_(config.num_heads),
      dropout_(config.attention_dropout) {}

BertBranch BertSelfAttentionImpl::forward(const at::Tensor& hidden,
                                          const at::Tensor& attention_mask,
                                          const SharedUnpadded& layout) {
  AttentionOptions options;
  options.dropout = is_training() ? dropout_ : 0;
  const auto made = ops::shared_rows(hidden, {query_->terms(), key_->terms(), value_->terms()});
  const auto by_head = [&](size_t part) {
    return made.parts[part].unflatten(-1, {num_heads_, made.parts[part].size(-1) / num_heads_});
  };
  const auto query = by_head(0), key = by_head(1), value = by_head(2);
  if (layout != nullptr && ops::attends_by_document(query)) {
    options.documents = layout->documents;
    return {attention(query, key, value, options).flatten(-2), made.residual};
  }
  options.padding_mask = attention_mask;
  const auto seen = attention(with_padding(query, layout), with_padding(key, layout),
                              with_padding(value, layout), options);
  return {without_padding(seen, layout).flatten(-2), made.residual};
}

BertOutputImpl::BertOutputImpl(int64_t input_width, const BertConfig& config)
    : dense_(register_module("dense", Linear(input_width, config.width))),
      norm_(register_module("LayerNorm", LayerNorm(config.width, config.epsilon))),
      dropout_(config.hidden_dropout) {}

at::Tensor BertOutputImpl::finish(const at::Tensor& product, const at::Tensor& residual) {
  return norm_(dropout() == 0 ? product : ops::dropped(product, dropout(), residual));
}

// Without dropout the product adds the residual itself.
at::Tensor BertOutputImpl::forward(const at::Tensor& input, const at::Tensor& residual) {
  const auto added = dropout() == 0 ? residual : at::Tensor();
  return finish(linear(input, dense_->terms(), added), residual);
}

at::Tensor BertOutputImpl::forward_activated(const at::Tensor& input, Activation activation,
                                             const at::Tensor& residual) {
  const auto added = dropout() == 0 ? residual : at::Tensor();
  return finish(ops::activated_projection({.packed = input}, activation, dense_->terms(), added),
                residual);
}

BertLayerImpl::BertLayerImpl(const BertConfig& config) : activation_(config.activation) {
  auto& attention = add_folder(*this, "attention");
  attention_ = attention.register_module("self", BertSelfAttention(config));
  attention_output_ = attention.register_module("output", BertOutput(config.width, config));
  intermediate_ = add_folder(*this, "intermediate")
                      .register_module("dense", Linear(config.width, config.feed_forward_width));
  output_ = register_module("output", BertOutput(config.feed_forward_width, config));
}

at::Tensor BertLayerImpl::forward(at::Tensor hidden, at::Tensor attention_mask,
                                  SharedUnpadded layout) {
  const auto attended = attention_(hidden, attention_mask, layout);
  hidden = attention_output_(attended.result, attended.residual);
  const auto inner = ops::shared_rows(hidden, {intermediate_->terms()});
  return output_->forward_activated(inner.parts.front(), activation_, inner.residual);
}

}  // namespace fullshard::models
