// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/nn/deferred.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

template <class Call>
std::string input_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return {};
}

// Without memory: the largest has eight thousand million parameters.
std::shared_ptr<LanguageModel> deferred_preset(const std::string& name) {
  const DeferredScope scope;
  return make_model(preset_config(name), name);
}

int64_t parameters_of(const LanguageModel& model) {
  int64_t numel = 0;
  for (const auto& parameter : model.parameters()) numel += parameter.numel();
  return numel;
}

TEST(ModelFolder, TextThatIsNoConfigurationIsRefused) {
  EXPECT_EQ(input_error([] { make_model("{\"a\": ", "x/config.json"); }),
            "x/config.json: is not valid JSON at column 7");
  EXPECT_EQ(input_error([] { make_model("[1]", "x/config.json"); }),
            "x/config.json: expected a JSON object with the settings of a model");
}

TEST(ModelFolder, AnUnknownArchitectureIsRefusedWithThoseThatAreKnown) {
  const auto call = [] {
    make_model(R"({"architectures": ["FalconForCausalLM"], "model_type": "falcon"})",
               "config.json");
  };
  EXPECT_EQ(
      input_error(call),
      "config.json: a model with architecture \"FalconForCausalLM\" and model_type \"falcon\" "
      "is not supported; supported are GPT2LMHeadModel, GPT2Model, LlamaForCausalLM, "
      "LlamaModel, MistralForCausalLM, MistralModel, Qwen2ForCausalLM, Qwen2Model, "
      "BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel, "
      "T5ForConditionalGeneration, T5WithLMHeadModel");
}

TEST(ModelFolder, ArchitectureAndTypeMustAgree) {
  auto config = tiny_llama();
  config["model_type"] = "mistral";
  EXPECT_THAT(refusal_of(config), HasSubstr("architecture \"LlamaForCausalLM\" and model_type "
                                            "\"mistral\" is not supported"));
  EXPECT_THAT(refusal_of(nlohmann::json::object()),
              HasSubstr("architecture \"\" and model_type \"\" is not supported"));
}

TEST(ModelFolder, TheTypeAloneIsEnoughAndABareModelGetsItsHead) {
  auto config = tiny_gpt2();
  config.erase("architectures");
  EXPECT_EQ(make_tiny(config)->architecture(), "GPT2LMHeadModel");
  config["architectures"] = {"GPT2Model"};
  const auto model = make_tiny(config);
  EXPECT_EQ(model->architecture(), "GPT2LMHeadModel");
  EXPECT_THAT(model->config_json(), HasSubstr("\"GPT2LMHeadModel\""));
}

TEST(ModelFolder, PresetsHaveTheirSizes) {
  EXPECT_EQ(parameters_of(*deferred_preset("gpt2-124m")), 124475904);
  EXPECT_EQ(parameters_of(*deferred_preset("llama-15m")), 15191712);
  EXPECT_EQ(parameters_of(*deferred_preset("llama-110m")), 109529856);
  EXPECT_EQ(parameters_of(*deferred_preset("llama-1.1b")), 1100048384);
  EXPECT_EQ(parameters_of(*deferred_preset("llama-8b")), 8030261248);
}

TEST(ModelFolder, PresetsHaveThePositionsOfTheirFamilies) {
  for (const auto& [name, positions] :
       std::vector<std::pair<std::string, int64_t>>{{"gpt2-124m", 1024},
                                                    {"gpt2-350m", 1024},
                                                    {"llama-1.1b", 2048},
                                                    {"llama-3b", 131072},
                                                    {"llama-8b", 8192},
                                                    {"bert-base", 512}}) {
    EXPECT_EQ(deferred_preset(name)->max_positions(), positions) << name;
  }
}

TEST(ModelFolder, EveryPresetCanBeMade) {
  EXPECT_THAT(preset_names(), IsSupersetOf({"gpt2-124m", "gpt2-350m", "llama-15m", "llama-110m",
                                            "llama-1.1b", "llama-3b", "llama-8b", "bert-base",
                                            "t5-small", "t5-base", "t5-v1_1-small"}));
  for (const auto& name : preset_names()) {
    const auto model = deferred_preset(name);
    const auto config = nlohmann::json::parse(preset_config(name));
    EXPECT_EQ(nlohmann::json::parse(model->config_json()), config) << name;
    EXPECT_EQ(model->architecture(), config["architectures"][0].get<std::string>());
    EXPECT_EQ(model->vocabulary(), config["vocab_size"].get<int64_t>());
  }
}

TEST(ModelFolder, AnUnknownPresetIsRefusedWithThoseThatExist) {
  try {
    preset_config("llama-7b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), fmt::format("model \"llama-7b\": no such preset; there are {}",
                                        fmt::join(preset_names(), ", ")));
    EXPECT_EQ(error.kind(), ErrorKind::usage);
  }
}

// 6 for each parameter of a product, and for each layer, position and unit of width.
TEST(ModelFolder, CountsTheWorkOfAToken) {
  EXPECT_EQ(deferred_preset("llama-15m")->flops_per_token(256),
            6.0 * 15191712 + 6.0 * 6 * 288 * 256);
  EXPECT_EQ(deferred_preset("llama-1.1b")->flops_per_token(2048),
            6.0 * (1100048384 - 32000 * 2048) + 6.0 * 22 * 2048 * 2048);
  EXPECT_EQ(deferred_preset("gpt2-124m")->flops_per_token(1024),
            6.0 * (124475904 - 1024 * 768) + 6.0 * 12 * 768 * 1024);
}

TEST(ModelFolder, AWindowSavesWork) {
  auto config = tiny_llama();
  config.update({{"architectures", {"MistralForCausalLM"}},
                 {"model_type", "mistral"},
                 {"num_key_value_heads", 2},
                 {"sliding_window", 4}});
  const auto windowed = make_tiny(config)->flops_per_token(16);
  config["sliding_window"] = nullptr;
  EXPECT_EQ(make_tiny(config)->flops_per_token(16) - windowed, 12.0 * 2 * 32 * (8 - 3.5));
}

}  // namespace
}  // namespace fullshard::testing
