// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/gpt2/gpt2_names.h"

namespace fullshard::models {
namespace {

constexpr std::string_view kGpt2Prefix = "transformer.";
constexpr std::string_view kGpt2Head = "lm_head.weight";

bool is_conv1d_weight(std::string_view name) {
  return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
         name.ends_with(".c_fc.weight");
}

}  // namespace

LanguageModel::FileName gpt2_file_name(const std::string& parameter, bool tied) {
  LanguageModel::FileName result;
  result.name = parameter;
  result.transposed = is_conv1d_weight(parameter);
  if (parameter.starts_with(kGpt2Prefix))
    result.others.push_back(parameter.substr(kGpt2Prefix.size()));
  if (tied && parameter == "transformer.wte.weight") result.others.emplace_back(kGpt2Head);
  return result;
}

bool is_ignored_in_gpt2_files(std::string_view name, bool tied) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         (tied && name == kGpt2Head);
}

}  // namespace fullshard::models
