// SPDX-License-Identifier: Apache-2.0
#include "tests/models/decoder_cases.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/remainder.h>

#include "fullshard/models/model_folder.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {

std::vector<std::string> decoder_folders() {
  return {"gpt2", "gpt2_options", "llama", "llama_tied", "llama_biases", "mistral", "qwen2"};
}

std::shared_ptr<LanguageModel> load_decoder(const std::string& folder, const std::string& config) {
  const auto make = [](const nlohmann::json& settings, const std::string& where,
                       const MakeOptions& options) {
    return fullshard::make_model(settings.dump(), where, options);
  };
  return load_fixture(make, folder, config);
}

nlohmann::json tiny_gpt2() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", 50},
          {"n_positions", 24},
          {"n_embd", 32},
          {"n_layer", 2},
          {"n_head", 2},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

nlohmann::json tiny_llama() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"vocab_size", 50},
          {"max_position_embeddings", 24},
          {"hidden_size", 32},
          {"intermediate_size", 40},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2}};
}

std::shared_ptr<LanguageModel> make_tiny(const nlohmann::json& config) {
  auto model = fullshard::make_model(config.dump(), "config.json");
  auto generator = at::make_generator<at::CPUGeneratorImpl>(1);
  for (auto& item : model->named_parameters()) {
    model->initialise(item.key(), item.value(), generator);
  }
  return model;
}

std::string refusal_of(const nlohmann::json& config) {
  try {
    fullshard::make_model(config.dump(), "config.json");
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

ModelInputs some_inputs(int64_t batch, int64_t length, int64_t vocabulary) {
  ModelInputs inputs;
  const auto numbers = at::arange(batch * length, at::kLong);
  inputs.input_ids = at::remainder(numbers * 7 + 3, vocabulary).view({batch, length});
  inputs.labels = inputs.input_ids;
  return inputs;
}

}  // namespace fullshard::testing
