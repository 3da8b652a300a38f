// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/bert/bert_names.h"

#include <string_view>
#include <vector>

namespace fullshard::models {
namespace {

constexpr std::string_view kBertPrefix = "bert.";
constexpr std::string_view kBertHead = "cls.";
constexpr std::string_view kClassHead = "classifier.";

std::string with_ending(const std::string& name, std::string_view ending, std::string_view other) {
  return name.substr(0, name.size() - ending.size()) + std::string(other);
}

// The name itself is not among them.
std::vector<std::string> older_names(const std::string& name) {
  constexpr std::string_view kWeight = "LayerNorm.weight", kBias = "LayerNorm.bias";
  if (name.ends_with(kWeight)) return {with_ending(name, kWeight, "LayerNorm.gamma")};
  if (name.ends_with(kBias)) return {with_ending(name, kBias, "LayerNorm.beta")};
  if (name == "cls.predictions.bias") return {"cls.predictions.decoder.bias"};
  if (name == "cls.predictions.decoder.bias") return {"cls.predictions.bias"};
  return {};
}

}  // namespace

LanguageModel::FileName bert_file_name(const BertConfig& config, const std::string& parameter) {
  LanguageModel::FileName file{.name = parameter, .others = older_names(parameter)};
  if (parameter.starts_with(kBertHead) || parameter.starts_with(kClassHead)) return file;
  const std::string other =
      config.is_bare ? std::string(kBertPrefix) + parameter : parameter.substr(kBertPrefix.size());
  file.others.push_back(other);
  for (auto& name : older_names(other)) file.others.push_back(std::move(name));
  return file;
}

bool is_ignored_in_bert_files(const BertConfig& config, const std::string& file_name) {
  std::string_view name = file_name;
  if (name == "embeddings.position_ids" || name == "bert.embeddings.position_ids") return true;
  if (config.is_bare || config.is_classifier()) return name.starts_with(kBertHead);
  if (name.starts_with("cls.seq_relationship.")) return true;
  if (name.starts_with("bert.pooler.") || name.starts_with("pooler.")) return true;
  if (!config.tied_head) return name == "cls.predictions.bias";
  return name == "cls.predictions.decoder.weight" || name == "cls.predictions.decoder.bias";
}

}  // namespace fullshard::models
