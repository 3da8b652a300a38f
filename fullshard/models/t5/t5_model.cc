// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_model.h"

#include <ATen/ops/full_like.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/initialisation.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/module_tree.h"
#include "fullshard/models/t5/t5_names.h"
#include "fullshard/ops/dropout.h"

namespace fullshard::models {

T5Stack::T5Stack(torch::nn::Module& parent, const T5Config& config, T5Part part)
    : dropout_(config.dropout) {
  const int64_t num_layers =
      part == T5Part::encoder ? config.num_encoder_layers : config.num_decoder_layers;
  auto& blocks = add_folder(parent, "block");
  for (int64_t i = 0; i < num_layers; ++i) {
    blocks_.push_back(blocks.register_module(std::to_string(i), T5Block(config, part, i == 0)));
  }
  norm_ = parent.register_module("final_layer_norm", RmsNorm(config.width, config.epsilon));
}

at::Tensor T5Stack::forward(T5Sequence embedded, const T5Sequence& encoded, bool is_training) {
  auto& hidden = embedded.hidden;
  hidden = ops::dropped(hidden, is_training ? dropout_ : 0);
  at::Tensor position_bias;
  for (auto& block : blocks_) {
    T5BlockOutput output = block(embedded, position_bias, encoded);
    hidden = output.hidden;
    if (output.position_bias.defined()) position_bias = output.position_bias;
  }
  return ops::dropped(norm_(hidden), is_training ? dropout_ : 0);
}

T5ForConditionalGenerationImpl::T5ForConditionalGenerationImpl(const T5Config& config)
    : config_(config),
      shared_(*this, "shared",
              {.vocabulary = config.vocabulary,
               .width = config.width,
               .serves_as_head = !config.own_head}),
      encoder_(add_folder(*this, "encoder"), config, T5Part::encoder),
      decoder_(add_folder(*this, "decoder"), config, T5Part::decoder) {
  if (!config.own_head) return;
  head_ = register_module("lm_head", LanguageHead(config.width, config.vocabulary));
}

at::Tensor t5_decoder_inputs(const at::Tensor& labels, int64_t start_token, int64_t padding_token) {
  auto inputs = at::full_like(labels, start_token, at::MemoryFormat::Contiguous);
  const int64_t length = labels.size(1);
  if (length > 1) inputs.narrow(1, 1, length - 1).copy_(labels.narrow(1, 0, length - 1));
  return inputs.masked_fill_(inputs == kNoLabel, padding_token);
}

at::Tensor T5ForConditionalGenerationImpl::decoder_inputs(const ModelInputs& inputs) const {
  const at::Tensor& given = inputs.decoder_input_ids;
  const at::Tensor& labels = inputs.labels;
  if (!given.defined() && !labels.defined()) {
    fail_as(ErrorKind::input, "T5: neither decoder_input_ids nor labels were given; give one");
  }
  if (given.defined()) {
    check_tokens("decoder_input_ids", given, config_.vocabulary, 0);
    if (labels.defined()) check_labels("labels", labels, given, config_.vocabulary);
    return given;
  }
  check_labels("labels", labels, labels, config_.vocabulary);
  return t5_decoder_inputs(labels, config_.start_token, config_.padding_token);
}

ModelOutputs T5ForConditionalGenerationImpl::forward(ModelInputs inputs) {
  if (inputs.cached != nullptr) return decode(inputs);
  refuse_packed(inputs, architecture());
  check_tokens("input_ids", inputs.input_ids, config_.vocabulary, 0);
  const auto targets = decoder_inputs(inputs);
  const auto encoded = encode_source(inputs);
  // Logits are wanted of every place.
  const auto layout =
      inputs.wants_logits || !inputs.labels.defined() ? nullptr : inputs.unpadded_labels;
  check_fits("unpadded_labels", layout, targets);
  const auto hidden = decoder_.forward({.hidden = shared_(without_padding(targets, layout)),
                                        .mask = padding_mask(inputs.decoder_attention_mask),
                                        .layout = layout},
                                       encoded, is_training());
  const auto labels = without_padding(inputs.labels, layout);
  const double scale =
      config_.scales_head ? 1 / std::sqrt(static_cast<double>(config_.width)) : 1.0;
  if (!head_.is_empty()) return head_outputs(hidden, head_, labels, inputs, scale);
  return head_outputs(hidden, Head{.weight = shared_.weight(), .scale = scale}, labels, inputs);
}

T5Sequence T5ForConditionalGenerationImpl::encode_source(const ModelInputs& inputs) {
  check_fits("unpadded", inputs.unpadded, inputs.input_ids);
  T5Sequence source{.mask = padding_mask(inputs.attention_mask), .layout = inputs.unpadded};
  source.hidden = shared_(without_padding(inputs.input_ids, source.layout));
  source.hidden = encoder_.forward(source, {}, is_training());
  return source;
}

double T5ForConditionalGenerationImpl::deviation_of(const std::string& name) const {
  const auto width = static_cast<double>(config_.width);
  const auto head_width = static_cast<double>(config_.head_width);
  const auto inner = static_cast<double>(config_.inner_width());
  if (name == "shared.weight" || name == "lm_head.weight") return 1;
  if (name.ends_with("Attention.q.weight")) return 1 / std::sqrt(width * head_width);
  if (name.ends_with("Attention.o.weight")) return 1 / std::sqrt(inner);
  if (name.ends_with(".wo.weight")) {
    return 1 / std::sqrt(static_cast<double>(config_.feed_forward_width));
  }
  return 1 / std::sqrt(width);
}

void T5ForConditionalGenerationImpl::initialise(const std::string& name, at::Tensor& parameter,
                                                at::Generator generator) const {
  const double factor = config_.initializer_factor;
  if (name.ends_with("layer_norm.weight")) return initialise_constant(parameter, factor);
  initialise_normal(parameter, factor * deviation_of(name), generator);
}

LanguageModel::FileName T5ForConditionalGenerationImpl::file_name(
    const std::string& parameter) const {
  return t5_file_name(parameter);
}

bool T5ForConditionalGenerationImpl::is_ignored_in_files(const std::string& file_name) const {
  return is_ignored_in_t5_files(config_, file_name);
}

std::string T5ForConditionalGenerationImpl::config_json() const {
  return model_config_text(config_.json, architecture(), "t5");
}

double T5ForConditionalGenerationImpl::flops_per_token(int64_t sequence_length) const {
  const auto width = static_cast<double>(config_.width);
  const auto inner = static_cast<double>(config_.inner_width());
  const auto feed_forward =
      static_cast<double>(config_.feed_forward_width) * width * (config_.is_gated ? 3 : 2);
  const auto encoders = static_cast<double>(config_.num_encoder_layers);
  const auto decoders = static_cast<double>(config_.num_decoder_layers);
  const auto keys = static_cast<double>(sequence_length);
  const double products = encoders * (4 * width * inner + feed_forward) +
                          decoders * (8 * width * inner + feed_forward) +
                          static_cast<double>(config_.vocabulary) * width;
  const double scores =
      inner * (encoders * keys + decoders * (mean_causal_keys(sequence_length, 0) + keys));
  return (6 * products + 12 * scores) / 2;
}

std::shared_ptr<LanguageModel> make_t5(const nlohmann::json& config, const std::string& where,
                                       const MakeOptions& options) {
  return T5ForConditionalGeneration(read_t5_config(config, where, options)).ptr();
}

}  // namespace fullshard::models
