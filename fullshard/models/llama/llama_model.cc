// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/llama_model.h"

#include <nlohmann/json.hpp>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/initialisation.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/llama/llama_names.h"

namespace fullshard::models {
namespace {

TokenTableOptions table_options(const LlamaConfig& config) {
  TokenTableOptions options{.vocabulary = config.vocabulary, .width = config.width};
  if (config.padding_token >= 0) options.padding_token = config.padding_token;
  options.serves_as_head = config.tied;
  return options;
}

}  // namespace

LlamaStackImpl::LlamaStackImpl(const LlamaConfig& config)
    : rope_(config.rope, config.head_width),
      embed_tokens_(*this, "embed_tokens", table_options(config)),
      layer_list_(register_module("layers", torch::nn::ModuleList())),
      norm_(register_module("norm", RmsNorm(config.width, config.norm_epsilon))) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    layers_.push_back(make_llama_layer(config, layer));
    layer_list_->push_back(layers_.back());
  }
}

at::Tensor LlamaStackImpl::forward(const at::Tensor& input_ids, const at::Tensor& padding_mask,
                                   const ops::SharedPackedDocuments& documents) {
  auto hidden = embed_tokens_(input_ids);
  const auto rotary = rope_.table(input_ids.size(1), hidden.device());
  for (const auto& layer : layers_) {
    hidden = layer->forward(hidden, rotary, padding_mask, nullptr, documents);
  }
  return norm_(hidden);
}

LlamaLanguageModel::LlamaLanguageModel(const LlamaConfig& config, const nlohmann::json& json)
    : config_(config),
      json_(model_config_text(json, family_name(config.family) + "ForCausalLM",
                              family_model_type(config.family))),
      model_(register_module("model", LlamaStack(config))) {
  if (!config.tied) {
    lm_head_ = register_module("lm_head", LanguageHead(config.width, config.vocabulary));
  }
  for (const auto& parameter : parameters()) matmul_numel_ += parameter.numel();
  if (!config.tied) matmul_numel_ -= config.vocabulary * config.width;
}

ModelOutputs LlamaLanguageModel::forward(ModelInputs inputs) {
  if (inputs.cached != nullptr) return decode(inputs);
  // Angles exist for every position: a longer sequence is the caller's choice.
  check_tokens("input_ids", inputs.input_ids, config_.vocabulary, 0);
  if (inputs.labels.defined()) {
    check_labels("labels", inputs.labels, inputs.input_ids, config_.vocabulary);
  }
  check_packed(inputs);
  const auto hidden =
      model_(inputs.input_ids, padding_mask(inputs.attention_mask), inputs.documents);
  if (!config_.tied) return causal_outputs(hidden, lm_head_, inputs);
  return causal_outputs(hidden, Head{.weight = model_->token_table()}, inputs);
}

void LlamaLanguageModel::initialise(const std::string& name, at::Tensor& parameter,
                                    at::Generator generator) const {
  if (name.ends_with(".bias")) {
    initialise_constant(parameter, 0);
  } else if (name.ends_with("norm.weight")) {
    initialise_constant(parameter, 1);
  } else {
    initialise_normal(parameter, config_.deviation, generator);
  }
  const bool is_table = name == "model.embed_tokens.weight";
  if (is_table && config_.padding_token >= 0) zero_row(parameter, config_.padding_token);
}

LanguageModel::FileName LlamaLanguageModel::file_name(const std::string& parameter) const {
  return llama_file_name(parameter, config_.tied);
}

bool LlamaLanguageModel::is_ignored_in_files(const std::string& file_name) const {
  return is_ignored_in_llama_files(file_name, config_.tied);
}

double LlamaLanguageModel::flops_per_token(int64_t sequence_length) const {
  double keys = 0;
  for (const int64_t window : config_.windows) keys += mean_causal_keys(sequence_length, window);
  const auto query_width = static_cast<double>(config_.num_heads * config_.head_width);
  return 6.0 * static_cast<double>(matmul_numel_) + 12.0 * query_width * keys;
}

std::shared_ptr<LanguageModel> make_llama(const nlohmann::json& config, const std::string& where,
                                          const MakeOptions& options) {
  return LlamaForCausalLM(read_llama_config(LlamaFamily::llama, config, where, options), config)
      .ptr();
}

std::shared_ptr<LanguageModel> make_mistral(const nlohmann::json& config, const std::string& where,
                                            const MakeOptions& options) {
  return MistralForCausalLM(read_llama_config(LlamaFamily::mistral, config, where, options), config)
      .ptr();
}

std::shared_ptr<LanguageModel> make_qwen2(const nlohmann::json& config, const std::string& where,
                                          const MakeOptions& options) {
  return Qwen2ForCausalLM(read_llama_config(LlamaFamily::qwen2, config, where, options), config)
      .ptr();
}

}  // namespace fullshard::models
