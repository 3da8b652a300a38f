// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/gpt2/gpt2_model.h"

#include <ATen/ops/arange.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/initialisation.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/gpt2/gpt2_names.h"
#include "fullshard/ops/dropout.h"

namespace fullshard::models {

Gpt2StackImpl::Gpt2StackImpl(const Gpt2Config& config)
    : dropout_(config.embedding_dropout),
      wte_(*this, "wte",
           {.vocabulary = config.vocabulary, .width = config.width, .serves_as_head = config.tied}),
      wpe_(register_module("wpe", Embedding(config.positions, config.width))),
      h_(register_module("h", torch::nn::ModuleList())),
      ln_f_(register_module("ln_f", LayerNorm(config.width, config.norm_epsilon))) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    blocks_.emplace_back(config, layer);
    h_->push_back(blocks_.back().ptr());
  }
}

at::Tensor Gpt2StackImpl::forward(const at::Tensor& input_ids, const at::Tensor& padding_mask,
                                  const ops::SharedPackedDocuments& documents) {
  const auto positions = documents != nullptr ? documents->positions
                                              : at::arange(input_ids.size(1), input_ids.options());
  auto hidden = ops::dropped(wte_(input_ids) + wpe_(positions), is_training() ? dropout_ : 0);
  for (auto& block : blocks_) {
    hidden = block(hidden, padding_mask, /*cached=*/static_cast<CachedPass*>(nullptr), documents);
  }
  return ln_f_(hidden);
}

GPT2LMHeadModelImpl::GPT2LMHeadModelImpl(const Gpt2Config& config, const nlohmann::json& json)
    : config_(config),
      json_(model_config_text(json, "GPT2LMHeadModel", "gpt2")),
      transformer_(register_module("transformer", Gpt2Stack(config))) {
  if (!config.tied) {
    lm_head_ = register_module("lm_head", LanguageHead(config.width, config.vocabulary));
  }
  for (const auto& parameter : parameters()) matmul_numel_ += parameter.numel();
  const int64_t looked_up = config.positions + (config.tied ? 0 : config.vocabulary);
  matmul_numel_ -= looked_up * config.width;
}

ModelOutputs GPT2LMHeadModelImpl::forward(ModelInputs inputs) {
  if (inputs.cached != nullptr) return decode(inputs);
  check_tokens("input_ids", inputs.input_ids, config_.vocabulary, config_.positions);
  if (inputs.labels.defined()) {
    check_labels("labels", inputs.labels, inputs.input_ids, config_.vocabulary);
  }
  check_packed(inputs);
  const auto hidden =
      transformer_(inputs.input_ids, padding_mask(inputs.attention_mask), inputs.documents);
  if (!config_.tied) return causal_outputs(hidden, lm_head_, inputs);
  return causal_outputs(hidden, Head{.weight = transformer_->token_table()}, inputs);
}

// Weights that end a residual branch are smaller: their sums over the layers then keep their size.
void GPT2LMHeadModelImpl::initialise(const std::string& name, at::Tensor& parameter,
                                     at::Generator generator) const {
  const bool is_norm = name.find("ln_") != std::string::npos;
  if (name.ends_with(".bias")) {
    initialise_constant(parameter, 0);
  } else if (is_norm) {
    initialise_constant(parameter, 1);
  } else if (name.ends_with(".c_proj.weight")) {
    const auto num_branches = static_cast<double>(2 * config_.num_layers);
    initialise_normal(parameter, config_.deviation / std::sqrt(num_branches), generator);
  } else {
    initialise_normal(parameter, config_.deviation, generator);
  }
}

LanguageModel::FileName GPT2LMHeadModelImpl::file_name(const std::string& parameter) const {
  return gpt2_file_name(parameter, config_.tied);
}

bool GPT2LMHeadModelImpl::is_ignored_in_files(const std::string& file_name) const {
  return is_ignored_in_gpt2_files(file_name, config_.tied);
}

double GPT2LMHeadModelImpl::flops_per_token(int64_t sequence_length) const {
  const double attention = 12.0 * static_cast<double>(config_.num_layers * config_.width) *
                           mean_causal_keys(sequence_length, 0);
  return 6.0 * static_cast<double>(matmul_numel_) + attention;
}

std::shared_ptr<LanguageModel> make_gpt2(const nlohmann::json& config, const std::string& where,
                                         const MakeOptions& options) {
  return GPT2LMHeadModel(read_gpt2_config(config, where, options), config).ptr();
}

}  // namespace fullshard::models
