// SPDX-License-Identifier: Apache-2.0
// Llama, Mistral and Qwen2 with their language-model heads.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/modules/container/modulelist.h>

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fullshard/models/common/head.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/token_table.h"
#include "fullshard/models/llama/llama_config.h"
#include "fullshard/models/llama/llama_layer.h"

namespace fullshard::models {

// What files call "model": the embedding, layers, the last norm.
class LlamaStackImpl : public torch::nn::Module {
 public:
  explicit LlamaStackImpl(const LlamaConfig& config);
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& padding_mask,
                     const ops::SharedPackedDocuments& documents);
  at::Tensor decode(const at::Tensor& input_ids, CachedPass& pass);

  const at::Tensor& token_table() const { return embed_tokens_.weight(); }

 private:
  RopeTables rope_;
  TokenTable embed_tokens_;
  torch::nn::ModuleList layer_list_;
  std::vector<std::shared_ptr<LlamaLayer>> layers_;
  RmsNorm norm_;
};
TORCH_MODULE(LlamaStack);

class LlamaLanguageModel : public LanguageModel {
 public:
  // `json` is what the settings were read from: config_json() gives it back.
  LlamaLanguageModel(const LlamaConfig& config, const nlohmann::json& json);

  ModelOutputs forward(ModelInputs inputs) override;
  void initialise(const std::string& name, at::Tensor& parameter,
                  at::Generator generator) const override;
  FileName file_name(const std::string& parameter) const override;
  bool is_ignored_in_files(const std::string& file_name) const override;

  std::string architecture() const override { return family_name(config_.family) + "ForCausalLM"; }
  std::string block_class() const override { return family_name(config_.family) + "DecoderLayer"; }
  std::string config_json() const override { return json_; }
  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.positions; }
  bool generates() const override { return true; }
  double flops_per_token(int64_t sequence_length) const override;

 private:
  ModelOutputs decode(const ModelInputs& inputs);

  LlamaConfig config_;
  std::string json_;
  LlamaStack model_;
  LanguageHead lm_head_ = nullptr;  // none when the embedding serves
  int64_t matmul_numel_ = 0;
};

struct LlamaForCausalLMImpl : LlamaLanguageModel {
  using LlamaLanguageModel::LlamaLanguageModel;
};
FULLSHARD_UNIT(LlamaForCausalLM);
struct MistralForCausalLMImpl : LlamaLanguageModel {
  using LlamaLanguageModel::LlamaLanguageModel;
};
FULLSHARD_UNIT(MistralForCausalLM);
struct Qwen2ForCausalLMImpl : LlamaLanguageModel {
  using LlamaLanguageModel::LlamaLanguageModel;
};
FULLSHARD_UNIT(Qwen2ForCausalLM);

// `where` names the configuration in errors.
std::shared_ptr<LanguageModel> make_llama(const nlohmann::json& config, const std::string& where,
                                          const MakeOptions& options = {});
std::shared_ptr<LanguageModel> make_mistral(const nlohmann::json& config, const std::string& where,
                                            const MakeOptions& options = {});
std::shared_ptr<LanguageModel> make_qwen2(const nlohmann::json& config, const std::string& where,
                                          const MakeOptions& options = {});

}  // namespace fullshard::models
