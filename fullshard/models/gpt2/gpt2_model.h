// SPDX-License-Identifier: Apache-2.0
// GPT-2 with its language-model head.
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
#include "fullshard/models/gpt2/gpt2_block.h"
#include "fullshard/models/gpt2/gpt2_config.h"
#include "fullshard/ops/embedding.h"

namespace fullshard::models {

// What files call "transformer": embeddings, blocks, the last norm.
class Gpt2StackImpl : public torch::nn::Module {
 public:
  explicit Gpt2StackImpl(const Gpt2Config& config);
  at::Tensor forward(const at::Tensor& input_ids, const at::Tensor& padding_mask,
                     const ops::SharedPackedDocuments& documents);
  at::Tensor decode(const at::Tensor& input_ids, CachedPass& pass);

  const at::Tensor& token_table() const { return wte_.weight(); }

 private:
  double dropout_;
  TokenTable wte_;
  Embedding wpe_;
  torch::nn::ModuleList h_;
  std::vector<GPT2Block> blocks_;
  LayerNorm ln_f_;
};
TORCH_MODULE(Gpt2Stack);

class GPT2LMHeadModelImpl : public LanguageModel {
 public:
  // `json` is what the settings were read from: config_json() gives it back.
  GPT2LMHeadModelImpl(const Gpt2Config& config, const nlohmann::json& json);

  ModelOutputs forward(ModelInputs inputs) override;
  void initialise(const std::string& name, at::Tensor& parameter,
                  at::Generator generator) const override;
  FileName file_name(const std::string& parameter) const override;
  bool is_ignored_in_files(const std::string& file_name) const override;

  std::string architecture() const override { return "GPT2LMHeadModel"; }
  std::string block_class() const override { return "GPT2Block"; }
  std::string config_json() const override { return json_; }
  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return config_.positions; }
  bool generates() const override { return true; }
  double flops_per_token(int64_t sequence_length) const override;

 private:
  ModelOutputs decode(const ModelInputs& inputs);

  Gpt2Config config_;
  std::string json_;
  Gpt2Stack transformer_;
  LanguageHead lm_head_ = nullptr;  // none when the embedding serves
  int64_t matmul_numel_ = 0;
};
FULLSHARD_UNIT(GPT2LMHeadModel);

// `where` names the configuration in errors.
std::shared_ptr<LanguageModel> make_gpt2(const nlohmann::json& config, const std::string& where,
                                         const MakeOptions& options = {});

}  // namespace fullshard::models
