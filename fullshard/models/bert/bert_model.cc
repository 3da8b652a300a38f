// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_model.h"

#include <ATen/ops/zeros.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/models/bert/bert_classifier.h"
#include "fullshard/models/bert/bert_names.h"
#include "fullshard/models/common/activation_function.h"
#include "fullshard/models/common/config_reader.h"
#include "fullshard/models/common/initialisation.h"
#include "fullshard/models/common/inputs.h"
#include "fullshard/models/common/module_tree.h"

namespace fullshard::models {

void BertLanguageModel::initialise(const std::string& name, at::Tensor& parameter,
                                   at::Generator generator) const {
  if (name.ends_with("LayerNorm.weight")) return initialise_constant(parameter, 1);
  if (name.ends_with(".bias")) return initialise_constant(parameter, 0);
  initialise_normal(parameter, config_.initializer_range, generator);
  if (name.ends_with("word_embeddings.weight") && config_.padding_token) {
    zero_row(parameter, *config_.padding_token);
  }
}

LanguageModel::FileName BertLanguageModel::file_name(const std::string& parameter) const {
  return bert_file_name(config_, parameter);
}

bool BertLanguageModel::is_ignored_in_files(const std::string& file_name) const {
  return is_ignored_in_bert_files(config_, file_name);
}

bool BertLanguageModel::is_head(const std::string& parameter) const {
  if (config_.lacks_pooler && parameter.starts_with("bert.pooler.")) return true;
  return parameter.starts_with("cls.") || parameter.starts_with("classifier.");
}

std::string BertLanguageModel::architecture() const {
  if (config_.is_classifier()) return "BertForSequenceClassification";
  return config_.is_bare ? "BertModel" : "BertForMaskedLM";
}

std::string BertLanguageModel::config_json() const {
  return model_config_text(config_.json, architecture(), "bert");
}

double BertLanguageModel::flops_per_token(int64_t sequence_length) const {
  const auto width = static_cast<double>(config_.width);
  const auto layers = static_cast<double>(config_.num_layers);
  const auto inner = static_cast<double>(config_.feed_forward_width);
  double products = layers * (4 * width * width + 2 * width * inner);
  const bool has_words = !config_.is_bare && !config_.is_classifier();
  if (has_words) products += width * width + static_cast<double>(config_.vocabulary) * width;
  return 6 * products + 12 * layers * width * static_cast<double>(sequence_length);
}

BertForMaskedLMImpl::BertForMaskedLMImpl(const BertConfig& config)
    : BertLanguageModel(config), encoder_(add_folder(*this, "bert"), config) {
  auto& predictions = add_folder(add_folder(*this, "cls"), "predictions");
  auto& transform = add_folder(predictions, "transform");
  transform_ = transform.register_module("dense", Linear(config.width, config.width));
  transform_norm_ = transform.register_module("LayerNorm", LayerNorm(config.width, config.epsilon));
  if (config.tied_head) {
    bias_ = predictions.register_parameter("bias", at::zeros({config.vocabulary}));
  } else {
    decoder_ =
        predictions.register_module("decoder", LanguageHead(config.width, config.vocabulary, true));
  }
}

ModelOutputs BertForMaskedLMImpl::forward(ModelInputs inputs) {
  const auto hidden = encoder_.forward(inputs, is_training());
  const auto& labels = inputs.labels;
  if (labels.defined()) check_labels("labels", labels, inputs.input_ids, config_.vocabulary);
  auto outputs =
      masked_outputs(transform_norm_(activate(transform_(hidden), config_.activation)), inputs);
  outputs.hidden = hidden;
  return outputs;
}

ModelOutputs BertForMaskedLMImpl::masked_outputs(const at::Tensor& seen,
                                                 const ModelInputs& inputs) {
  if (!config_.tied_head) return head_outputs(seen, decoder_, inputs.labels, inputs);
  return head_outputs(seen, Head{encoder_.word_embeddings(), bias_}, inputs.labels, inputs);
}

BertModelImpl::BertModelImpl(const BertConfig& config)
    : BertLanguageModel(config), encoder_(*this, config) {
  add_folder(*this, "pooler").register_module("dense", Linear(config.width, config.width));
}

ModelOutputs BertModelImpl::forward(ModelInputs inputs) {
  if (inputs.labels.defined()) {
    fail_as(ErrorKind::input,
            "BertModel: labels were given, but a bare encoder has no head to compare with them; "
            "use BertForMaskedLM");
  }
  return {.hidden = encoder_.forward(inputs, is_training())};
}

std::shared_ptr<LanguageModel> make_bert(const nlohmann::json& config, const std::string& where,
                                         const MakeOptions& options) {
  const BertConfig bert = read_bert_config(config, where, options);
  if (bert.is_classifier()) return BertForSequenceClassification(bert).ptr();
  if (bert.is_bare) return BertModel(bert).ptr();
  return BertForMaskedLM(bert).ptr();
}

}  // namespace fullshard::models
