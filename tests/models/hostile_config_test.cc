// SPDX-License-Identifier: Apache-2.0
// config.json as somebody else may have written it: nothing is built of sizes that no model has, or
// that are not those of the weights beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/models/model_folder.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kHuge = int64_t{1} << 41;

std::string refused(const std::string& text, const MakeOptions& options = {}) {
  try {
    make_model(text, "m/config.json", options);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 4);
    return error.what();
  }
  return "made";
}

std::string model_named(const std::string& folder) {
  if (folder == "bert") return "BERT model";
  if (folder == "t5") return "T5 model";
  return folder == "llama" ? "LlamaForCausalLM" : "GPT2LMHeadModel";
}

struct SizeKey {
  std::string folder;
  std::string key;
  int64_t most;
  bool is_in_file = true;
};

const std::vector<SizeKey> kSizeKeys = {
    {"gpt2", "vocab_size", 1 << 28},
    {"gpt2", "n_positions", 1 << 28},
    {"gpt2", "n_layer", 10'000},
    {"gpt2", "n_inner", 1 << 24},
    {"llama", "vocab_size", 1 << 28},
    {"llama", "hidden_size", 1 << 22},
    {"llama", "intermediate_size", 1 << 22},
    {"llama", "num_hidden_layers", 10'000},
    {"llama", "max_position_embeddings", int64_t{1} << 40, false},
    {"bert", "vocab_size", 1 << 28},
    {"bert", "intermediate_size", 1 << 22},
    {"bert", "max_position_embeddings", 1 << 28},
    {"bert", "type_vocab_size", 1 << 28},
    {"bert", "num_hidden_layers", 10'000},
    {"t5", "vocab_size", 1 << 28},
    {"t5", "d_model", 1 << 22},
    {"t5", "d_ff", 1 << 22},
    {"t5", "d_kv", 1 << 22, false},
    {"t5", "num_heads", 1 << 22, false},
    {"t5", "num_layers", 10'000},
    {"t5", "num_decoder_layers", 10'000},
    {"t5", "relative_attention_num_buckets", 1 << 22, false},
};

nlohmann::json config_with(const SizeKey& size, int64_t value) {
  auto config = fixture_json(size.folder + "/config.json");
  config[size.key] = value;
  if (size.key == "relative_attention_num_buckets") {
    config["relative_attention_max_distance"] = kHuge / 2;
  }
  return config;
}

TEST(HostileConfig, NoSizeIsBuiltThatNoModelHas) {
  for (const auto& size : kSizeKeys) {
    EXPECT_EQ(
        refused(config_with(size, kHuge).dump()),
        fmt::format("m/config.json: no {} can be made of it:\n  {} is {}: expected at most {}",
                    model_named(size.folder), size.key, kHuge, size.most));
  }
}

TEST(HostileConfig, SizesAreThoseOfTheWeights) {
  for (const auto& size : kSizeKeys) {
    if (!size.is_in_file) continue;
    const auto options =
        made_for(read_tensor_file(fixture_path(size.folder + "/model.safetensors")));
    auto config = fixture_json(size.folder + "/config.json");
    const int64_t own = size.key == "n_inner" ? 96 : config[size.key].get<int64_t>();
    for (const int64_t other : {own + 1, kHuge}) {
      EXPECT_EQ(refused(config_with(size, other).dump(), options),
                fmt::format("m/config.json: no {} can be made of it:\n  {} is {}: the weights "
                            "beside it have {}",
                            model_named(size.folder), size.key, other, own));
    }
    EXPECT_EQ(refused(config.dump(), options), "made");
  }
}

TEST(HostileConfig, AMillionLayersAreNotBuilt) {
  auto config = fixture_json("bert/config.json");
  config["num_hidden_layers"] = 1'000'000;
  EXPECT_EQ(refused(config.dump()),
            "m/config.json: no BERT model can be made of it:\n"
            "  num_hidden_layers is 1000000: expected at most 10000");
  const auto options = made_for(read_tensor_file(fixture_path("bert/model.safetensors")));
  EXPECT_EQ(refused(config.dump(), options),
            "m/config.json: no BERT model can be made of it:\n"
            "  num_hidden_layers is 1000000: the weights beside it have 2");
}

TEST(HostileConfig, ProductsOfSizesStayWithinBounds) {
  auto llama = fixture_json("llama/config.json");
  llama["head_dim"] = 1 << 21;
  EXPECT_EQ(refused(llama.dump()),
            "m/config.json: no LlamaForCausalLM can be made of it:\n  head_dim is 2097152: the 4 "
            "heads are 8388608 wide together, expected at most 4194304");
  auto t5 = fixture_json("t5/config.json");
  t5["d_kv"] = 1 << 21;
  EXPECT_EQ(refused(t5.dump()),
            "m/config.json: no T5 model can be made of it:\n  d_kv is 2097152: num_heads times "
            "d_kv is 6291456, expected at most 4194304");
}

TEST(HostileConfig, DeepNestingIsRefusedByPlace) {
  std::string deep = R"({"model_type": "bert", "id2label": )";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  deep += "1" + std::string(100'001, '}');
  EXPECT_EQ(refused(deep), "m/config.json: is nested more than 100 deep at column 531");
}

TEST(HostileConfig, NumbersBeyondFp64AreRefused) {
  EXPECT_EQ(refused(R"({"model_type": "bert", "layer_norm_eps": 1e999})"),
            "m/config.json: holds a number beyond the range of fp64");
}

TEST(HostileConfig, NumbersThatMakeEverythingNanAreRefused) {
  struct Case {
    std::string folder, key, least;
  };
  for (const Case& one : std::vector<Case>{{"llama", "rms_norm_eps", "0"},
                                           {"llama", "initializer_range", "0"},
                                           {"gpt2", "layer_norm_epsilon", "0"},
                                           {"gpt2", "initializer_range", "0"},
                                           {"bert", "layer_norm_eps", "0"},
                                           {"bert", "initializer_range", "0"},
                                           {"t5", "layer_norm_epsilon", "0"},
                                           {"t5", "initializer_factor", "0"}}) {
    auto config = fixture_json(one.folder + "/config.json");
    config[one.key] = -1;
    EXPECT_EQ(refused(config.dump()),
              fmt::format("m/config.json: no {} can be made of it:\n  {} is -1: expected a number "
                          "of at least {}",
                          model_named(one.folder), one.key, one.least));
  }
  for (const double theta : {0.0, -10000.0, 0.5}) {
    auto config = fixture_json("llama/config.json");
    config.erase("rope_parameters");
    config.erase("rope_scaling");
    config["rope_theta"] = theta;
    EXPECT_THAT(refused(config.dump()), HasSubstr("rope_theta is ")) << theta;
    config.erase("rope_theta");
    config["rope_parameters"] = {{"rope_theta", theta}, {"rope_type", "default"}};
    EXPECT_THAT(refused(config.dump()), HasSubstr("rope_parameters.rope_theta is ")) << theta;
  }
}

TEST(HostileConfig, WhatIsNestedIsNotShown) {
  nlohmann::json deep = nlohmann::json::array();
  for (int i = 0; i < 90; ++i) deep = nlohmann::json::array({deep});
  auto config = fixture_json("llama/config.json");
  config["hidden_size"] = deep;
  EXPECT_EQ(refused(config.dump()),
            "m/config.json: no LlamaForCausalLM can be made of it:\n  hidden_size is a list with 1 "
            "entries: expected an integer");
  EXPECT_THAT(refused(nlohmann::json{{"architectures", {deep}}}.dump()),
              StartsWith("m/config.json: a model with architecture \"a list with 1 entries\" and"));
}

TEST(HostileConfig, NamesAreShownEscapedAndShort) {
  auto config = fixture_json("t5/config.json");
  config["a\x1b[2J\nb"] = std::string(5000, 'x') + '\0';
  EXPECT_EQ(refused(config.dump()),
            "m/config.json: no T5 model can be made of it:\n  a\\x1b[2J\\nb is \"" +
                std::string(199, 'x') + "…: unknown");
  EXPECT_THAT(
      refused(R"({"architectures": ["a\u001b[31m"], "model_type": "\u0000"})"),
      StartsWith("m/config.json: a model with architecture \"a\\x1b[31m\" and model_type \"\\x00\" "
                 "is not supported; supported are GPT2LMHeadModel"));
}

TEST(HostileConfig, AnEncoderOfT5AloneIsNoModelHere) {
  auto config = fixture_json("t5/config.json");
  config["architectures"] = {"T5EncoderModel"};
  EXPECT_THAT(refused(config.dump()),
              StartsWith("m/config.json: a model with architecture \"T5EncoderModel\" and "
                         "model_type \"t5\" is not supported; supported are GPT2LMHeadModel"));
}

}  // namespace
}  // namespace fullshard::testing
