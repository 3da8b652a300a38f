// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/llama/llama_names.h"

namespace fullshard::models {
namespace {

constexpr std::string_view kLlamaPrefix = "model.";
constexpr std::string_view kLlamaHead = "lm_head.weight";

}  // namespace

LanguageModel::FileName llama_file_name(const std::string& parameter, bool tied) {
  LanguageModel::FileName result;
  result.name = parameter;
  if (parameter.starts_with(kLlamaPrefix))
    result.others.push_back(parameter.substr(kLlamaPrefix.size()));
  if (tied && parameter == "model.embed_tokens.weight") result.others.emplace_back(kLlamaHead);
  return result;
}

bool is_ignored_in_llama_files(std::string_view name, bool tied) {
  return name.ends_with("rotary_emb.inv_freq") || (tied && name == kLlamaHead);
}

}  // namespace fullshard::models
