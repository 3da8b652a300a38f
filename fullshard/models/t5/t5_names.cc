// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/t5/t5_names.h"

namespace fullshard::models {
namespace {

constexpr const char* kEncoderEmbedding = "encoder.embed_tokens.weight";
constexpr const char* kDecoderEmbedding = "decoder.embed_tokens.weight";

}  // namespace

LanguageModel::FileName t5_file_name(const std::string& parameter) {
  LanguageModel::FileName file{.name = parameter};
  if (parameter == "shared.weight") file.others = {kEncoderEmbedding, kDecoderEmbedding};
  return file;
}

bool is_ignored_in_t5_files(const T5Config& config, const std::string& file_name) {
  if (file_name == kEncoderEmbedding || file_name == kDecoderEmbedding) return true;
  if (file_name == "lm_head.weight") return !config.own_head;
  return file_name == "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
}

}  // namespace fullshard::models
