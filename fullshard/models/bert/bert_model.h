// SPDX-License-Identifier: Apache-2.0
// BERT for masked language modelling, and the bare encoder.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "fullshard/models/bert/bert_config.h"
#include "fullshard/models/bert/bert_encoder.h"
#include "fullshard/models/common/head.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard::models {

// What both answer alike.
class BertLanguageModel : public LanguageModel {
 public:
  explicit BertLanguageModel(const BertConfig& config) : config_(config) {}

  void initialise(const std::string& name, at::Tensor& parameter,
                  at::Generator generator) const override;
  FileName file_name(const std::string& parameter) const override;
  bool is_ignored_in_files(const std::string& file_name) const override;
  std::string architecture() const override;
  std::string block_class() const override { return "BertLayer"; }
  std::string config_json() const override;
  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.max_positions; }
  bool is_masked() const override { return true; }
  bool is_head(const std::string& parameter) const override;
  double flops_per_token(int64_t sequence_length) const override;

 protected:
  BertConfig config_;
};

// Labels stand at the masked tokens. `hidden` of the outputs is the encoder's last state.
class BertForMaskedLMImpl : public BertLanguageModel {
 public:
  explicit BertForMaskedLMImpl(const BertConfig& config);
  ModelOutputs forward(ModelInputs inputs) override;

 private:
  ModelOutputs masked_outputs(const at::Tensor& seen, const ModelInputs& inputs);

  BertEncoder encoder_;
  Linear transform_ = nullptr;
  LayerNorm transform_norm_ = nullptr;
  LanguageHead decoder_ = nullptr;  // none when the embedding serves
  at::Tensor bias_;                 // of a tied head
};
FULLSHARD_UNIT(BertForMaskedLM);

// Gives `hidden` only. The pooler is loaded, kept and saved, but no output depends on it.
class BertModelImpl : public BertLanguageModel {
 public:
  explicit BertModelImpl(const BertConfig& config);
  ModelOutputs forward(ModelInputs inputs) override;

 private:
  BertEncoder encoder_;
};
FULLSHARD_UNIT(BertModel);

// BertForMaskedLM, BertForPreTraining (its masked head), BertForSequenceClassification or
// BertModel, by "architectures"; a BertModel that needs a head becomes a BertForMaskedLM.
std::shared_ptr<LanguageModel> make_bert(const nlohmann::json& config, const std::string& where,
                                         const MakeOptions& options = {});

}  // namespace fullshard::models
