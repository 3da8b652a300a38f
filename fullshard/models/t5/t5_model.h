// SPDX-License-Identifier: Apache-2.0
// T5 for text to text: v1.0 and v1.1.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "fullshard/models/common/head.h"
#include "fullshard/models/common/language_model.h"
#include "fullshard/models/common/token_table.h"
#include "fullshard/models/t5/t5_block.h"
#include "fullshard/models/t5/t5_config.h"
#include "fullshard/ops/norm.h"

namespace fullshard::models {

// The blocks of the encoder or the decoder and their last norm; no module itself, it hangs them
// below `parent`.
class T5Stack {
 public:
  T5Stack(torch::nn::Module& parent, const T5Config& config, T5Part part);

  // From embedded tokens [batch, sequence, width]; for the decoder also what the encoder gave.
  at::Tensor forward(T5Sequence embedded, const T5Sequence& encoded, bool is_training);
  at::Tensor decode(const at::Tensor& embedded, CachedPass& pass);

 private:
  std::vector<T5Block> blocks_;
  RmsNorm norm_ = nullptr;
  double dropout_;
};

// Labels are the target's tokens; the decoder's inputs are made of them unless they are given.
class T5ForConditionalGenerationImpl : public LanguageModel {
 public:
  explicit T5ForConditionalGenerationImpl(const T5Config& config);
  ModelOutputs forward(ModelInputs inputs) override;

  void initialise(const std::string& name, at::Tensor& parameter,
                  at::Generator generator) const override;
  FileName file_name(const std::string& parameter) const override;
  bool is_ignored_in_files(const std::string& file_name) const override;
  std::string architecture() const override { return "T5ForConditionalGeneration"; }
  std::string block_class() const override { return "T5Block"; }
  std::string config_json() const override;
  int64_t vocabulary() const override { return config_.vocabulary; }
  int64_t max_positions() const override { return 0; }
  bool is_encoder_decoder() const override { return true; }
  bool generates() const override { return true; }
  // Of a token of source or target, the mean of both, when each is `sequence_length` long.
  double flops_per_token(int64_t sequence_length) const override;

 private:
  double deviation_of(const std::string& name) const;
  at::Tensor decoder_inputs(const ModelInputs& inputs) const;
  T5Sequence encode_source(const ModelInputs& inputs);
  // Sources come with the first pass of a cache only.
  ModelOutputs decode(const ModelInputs& inputs);
  void encode(const ModelInputs& inputs, CachedPass& pass);

  T5Config config_;
  TokenTable shared_;
  T5Stack encoder_, decoder_;
  LanguageHead head_ = nullptr;  // none when the embedding serves
};
FULLSHARD_UNIT(T5ForConditionalGeneration);

// Labels moved one to the right behind `start_token`, with `padding_token` where there is no label.
at::Tensor t5_decoder_inputs(const at::Tensor& labels, int64_t start_token, int64_t padding_token);

std::shared_ptr<LanguageModel> make_t5(const nlohmann::json& config, const std::string& where,
                                       const MakeOptions& options = {});

}  // namespace fullshard::models
