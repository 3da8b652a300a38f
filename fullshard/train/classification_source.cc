// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/classification_source.h"

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/base/json_text.h"

namespace fullshard::train {
namespace {

constexpr const char* kClassifier = "BertForSequenceClassification";

// What cannot be read is left to the model, which says why.
nlohmann::json config_of(const ModelSource& source) {
  try {
    return base::parse_json(source.config_json);
  } catch (const base::JsonError&) {
    return nullptr;
  }
}

}  // namespace

ModelSource classification_source(ModelSource source, const std::vector<std::string>& classes,
                                  bool is_new_head) {
  auto config = config_of(source);
  if (!config.is_object()) return source;
  const auto type = config.value("model_type", nlohmann::json());
  if (type != "bert") {
    fail_as(ErrorKind::usage, "--task: is classification, which BERT is trained for; {} is {}",
            source.name, type.is_string() ? type.get<std::string>() : "another model");
  }
  const auto names = config.value("architectures", nlohmann::json());
  const bool is_classifier = names.is_array() && !names.empty() && names[0] == kClassifier;
  if (is_classifier && !is_new_head) return source;
  config["architectures"] = {kClassifier};
  config.erase("num_labels");
  config["id2label"] = nlohmann::json::object();
  config["label2id"] = nlohmann::json::object();
  for (size_t i = 0; i < classes.size(); ++i) {
    config["id2label"][std::to_string(i)] = classes[i];
    config["label2id"][classes[i]] = i;
  }
  source.config_json = config.dump();
  return source;
}

}  // namespace fullshard::train
