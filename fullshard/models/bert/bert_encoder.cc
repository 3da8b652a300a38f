// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_encoder.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/zeros_like.h>

#include <string>

#include "fullshard/base/error.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/module_tree.h"
#include "fullshard/ops/dropout.h"

namespace fullshard::models {
namespace {

TokenTableOptions words_options(const BertConfig& config) {
  return {.vocabulary = config.vocabulary,
          .width = config.width,
          .padding_token = config.padding_token,
          .serves_as_head = config.tied_head && !config.is_bare && !config.is_classifier()};
}

}  // namespace

BertEncoder::BertEncoder(torch::nn::Module& parent, const BertConfig& config)
    : vocabulary_(config.vocabulary),
      max_positions_(config.max_positions),
      num_token_types_(config.num_token_types),
      dropout_(config.hidden_dropout) {
  auto& embeddings = add_folder(parent, "embeddings");
  words_ = TokenTable(embeddings, "word_embeddings", words_options(config));
  positions_ = embeddings.register_module("position_embeddings",
                                          Embedding(config.max_positions, config.width));
  token_types_ = embeddings.register_module("token_type_embeddings",
                                            Embedding(config.num_token_types, config.width));
  norm_ = embeddings.register_module("LayerNorm", LayerNorm(config.width, config.epsilon));
  auto& layers = add_folder(add_folder(parent, "encoder"), "layer");
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers_.push_back(layers.register_module(std::to_string(i), BertLayer(config)));
  }
}

at::Tensor BertEncoder::token_types_of(const ModelInputs& inputs) const {
  const auto& types = inputs.token_type_ids;
  if (!types.defined()) return at::zeros_like(inputs.input_ids);
  const bool fits = types.sizes() == inputs.input_ids.sizes();
  if (!fits || (types.is_cpu() && (types.lt(0) | types.ge(num_token_types_)).any().item<bool>())) {
    fail_as(ErrorKind::input,
            "token_type_ids: expected a number from 0 to {} for each of the input_ids "
            "(type_vocab_size is {})",
            num_token_types_ - 1, num_token_types_);
  }
  return types;
}

at::Tensor BertEncoder::embed(const ModelInputs& inputs, const SharedUnpadded& layout) {
  const auto& ids = inputs.input_ids;
  check_tokens("input_ids", ids, vocabulary_, max_positions_);
  const auto types = without_padding(token_types_of(inputs), layout);
  const auto positions =
      layout ? layout->documents->positions : at::arange(ids.size(-1), ids.options());
  return norm_(words_(without_padding(ids, layout)) + token_types_(types) + positions_(positions));
}

at::Tensor BertEncoder::forward(const ModelInputs& inputs, bool is_training) {
  refuse_packed(inputs, "BERT");
  const auto& layout = inputs.unpadded;
  check_fits("unpadded", layout, inputs.input_ids);
  at::Tensor hidden = ops::dropped(embed(inputs, layout), is_training ? dropout_ : 0);
  const at::Tensor mask = padding_mask(inputs.attention_mask);
  for (auto& layer : layers_) hidden = layer(hidden, mask, layout);
  return with_padding(hidden, layout);
}

}  // namespace fullshard::models
