// SPDX-License-Identifier: Apache-2.0
// What configurations of decoders are refused for, and what absent keys mean.
#include <gtest/gtest.h>

#include "fullshard/models/gpt2/gpt2_config.h"
#include "fullshard/models/llama/llama_config.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

using nlohmann::json;

json with(json config, const json& changes) {
  config.update(changes);
  return config;
}

json tiny(const std::string& architecture, const std::string& type, const json& changes) {
  return with(with(tiny_llama(), {{"architectures", {architecture}}, {"model_type", type}}),
              changes);
}

TEST(DecoderConfig, Gpt2RefusesAllAtOnce) {
  const json changes = {{"n_head", 5},
                        {"activation_function", "mish"},
                        {"add_cross_attention", true},
                        {"rotary_dim", 8},
                        {"resid_pdrop", 1.5}};
  EXPECT_EQ(refusal_of(with(tiny_gpt2(), changes)),
            "config.json: no GPT2LMHeadModel can be made of it:\n"
            "  n_head is 5: expected a divisor of the width 32\n"
            "  activation_function is \"mish\": gelu, gelu_new, gelu_pytorch_tanh, relu, silu and "
            "swish are supported\n"
            "  resid_pdrop is 1.5: expected a number from 0 to below 1\n"
            "  add_cross_attention is true: unknown\n"
            "  rotary_dim is 8: unknown");
}

TEST(DecoderConfig, LlamaRefusesAllAtOnce) {
  const json changes = {{"num_key_value_heads", 3},
                        {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", 32}}},
                        {"partial_rotary_factor", 0.5},
                        {"pad_token_id", 50},
                        {"quantization_config", {{"bits", 4}}}};
  EXPECT_EQ(
      refusal_of(with(tiny_llama(), changes)),
      "config.json: no LlamaForCausalLM can be made of it:\n"
      "  num_key_value_heads is 3: expected a divisor of the 2 heads\n"
      "  pad_token_id is 50: the vocabulary has 50 tokens\n"
      "  partial_rotary_factor is 0.5: only 1.0 is supported\n"
      "  rope_scaling.type is \"yarn\": \"default\", \"linear\" and \"llama3\" are supported\n"
      "  quantization_config is {\"bits\":4}: unknown");
}

TEST(DecoderConfig, RopeNeedsWhatItsKindNeeds) {
  EXPECT_EQ(refusal_of(with(tiny_llama(), {{"rope_parameters", {{"rope_type", "llama3"}}}})),
            "config.json: no LlamaForCausalLM can be made of it:\n"
            "  rope_parameters.factor is absent: expected a number above 0\n"
            "  rope_parameters.low_freq_factor is absent: expected a number above 0\n"
            "  rope_parameters.high_freq_factor is absent: expected a number above 0\n"
            "  rope_parameters.high_freq_factor is absent: expected more than low_freq_factor");
  EXPECT_EQ(
      refusal_of(with(tiny_llama(), {{"rope_parameters", {{"rope_type", "dynamic"}}}})),
      "config.json: no LlamaForCausalLM can be made of it:\n"
      "  rope_parameters.rope_type is \"dynamic\": \"default\", \"linear\" and \"llama3\" are "
      "supported");
}

TEST(DecoderConfig, EachFamilyKnowsItsOwnOptions) {
  EXPECT_EQ(refusal_of(with(tiny_llama(), {{"sliding_window", 8}, {"use_sliding_window", true}})),
            "config.json: no LlamaForCausalLM can be made of it:\n"
            "  sliding_window is 8: unknown\n"
            "  use_sliding_window is true: unknown");
  EXPECT_EQ(refusal_of(tiny("MistralForCausalLM", "mistral",
                            {{"num_key_value_heads", 2}, {"attention_bias", true}})),
            "config.json: no MistralForCausalLM can be made of it:\n"
            "  attention_bias is true: only false is supported");
  EXPECT_EQ(refusal_of(tiny("Qwen2ForCausalLM", "qwen2",
                            {{"num_key_value_heads", 2},
                             {"layer_types", {"full_attention", "chunked_attention"}}})),
            "config.json: no Qwen2ForCausalLM can be made of it:\n"
            "  layer_types is [\"full_attention\",\"chunked_attention\"]: full_attention and "
            "sliding_attention are supported");
}

TEST(DecoderConfig, AbsentKeysMeanWhatTheyMeanInTransformers) {
  const json nothing = json::object();
  const auto gpt2 = models::read_gpt2_config(nothing, "config.json");
  EXPECT_EQ(gpt2.vocabulary, 50257);
  EXPECT_EQ(gpt2.inner_width, 3072);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_TRUE(gpt2.tied);
  const auto llama = models::read_llama_config(models::LlamaFamily::llama, nothing, "config.json");
  EXPECT_EQ(llama.num_kv_heads, 32);
  EXPECT_EQ(llama.positions, 2048);
  EXPECT_EQ(llama.padding_token, -1);
  EXPECT_FALSE(llama.tied);
  const auto mistral =
      models::read_llama_config(models::LlamaFamily::mistral, nothing, "config.json");
  EXPECT_EQ(mistral.num_kv_heads, 8);
  EXPECT_EQ(mistral.windows, std::vector<int64_t>(32, 4096));
  const auto qwen2 = models::read_llama_config(models::LlamaFamily::qwen2, nothing, "config.json");
  EXPECT_EQ(qwen2.vocabulary, 151936);
  EXPECT_EQ(qwen2.windows, std::vector<int64_t>(32, 0));
  EXPECT_TRUE(qwen2.query_bias);
  EXPECT_FALSE(qwen2.output_bias);
}

TEST(DecoderConfig, AWindowMayBeNull) {
  const auto mistral = models::read_llama_config(models::LlamaFamily::mistral,
                                                 {{"sliding_window", nullptr}}, "config.json");
  EXPECT_EQ(mistral.windows, std::vector<int64_t>(32, 0));
}

TEST(DecoderConfig, TheOldNamesOfGpt2AndTheCommonOnesAgree) {
  const auto config = models::read_gpt2_config({{"hidden_size", 64},
                                                {"num_hidden_layers", 3},
                                                {"num_attention_heads", 4},
                                                {"max_position_embeddings", 128}},
                                               "config.json");
  EXPECT_EQ(config.width, 64);
  EXPECT_EQ(config.num_layers, 3);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.positions, 128);
}

TEST(DecoderConfig, APaddingTokenBelowZeroCountsFromTheEnd) {
  const json config = {{"vocab_size", 100}, {"pad_token_id", -1}};
  EXPECT_EQ(
      models::read_llama_config(models::LlamaFamily::llama, config, "config.json").padding_token,
      99);
}

}  // namespace
}  // namespace fullshard::testing
