// SPDX-License-Identifier: Apache-2.0
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

nlohmann::json dropping(nlohmann::json config, const std::string& key, double value) {
  config[key] = value;
  return config;
}

at::Tensor hidden_of(LanguageModel& model) { return model.forward(some_inputs(2, 24)).hidden; }

// The same first values, with one kind of dropout and without.
void expect_drops_in_training_only(const nlohmann::json& plain, const std::string& key) {
  at::manual_seed(1);
  const auto expected = hidden_of(*make_tiny(plain));
  const auto model = make_tiny(dropping(plain, key, 0.3));
  EXPECT_FALSE(at::equal(hidden_of(*model), expected)) << key;
  EXPECT_FALSE(at::equal(hidden_of(*model), hidden_of(*model))) << key;
  model->eval();
  EXPECT_TRUE(at::equal(hidden_of(*model), expected)) << key;
}

TEST(DecoderDropout, HappensInTrainingOnly) {
  expect_drops_in_training_only(tiny_gpt2(), "embd_pdrop");
  expect_drops_in_training_only(tiny_gpt2(), "attn_pdrop");
  expect_drops_in_training_only(tiny_gpt2(), "resid_pdrop");
  expect_drops_in_training_only(tiny_llama(), "attention_dropout");
}

// All embeddings are 1 and the blocks add nothing: after the last norm, what was kept lies above 0
// and what was dropped below.
TEST(DecoderDropout, DropsTheShareThatIsAskedFor) {
  const at::NoGradGuard no_grad;
  const auto model = make_tiny(dropping(tiny_gpt2(), "embd_pdrop", 0.25));
  for (const auto& name : parameter_names(*model)) {
    auto parameter = parameter_of(*model, name);
    if (name.find(".h.") != std::string::npos) parameter.zero_();
    if (name.find("wpe") != std::string::npos) parameter.zero_();
    if (name.find("wte") != std::string::npos) parameter.fill_(1);
  }
  at::manual_seed(1);
  const auto hidden = hidden_of(*model);  // 1536 values
  EXPECT_NEAR(hidden.gt(0).to(at::kDouble).mean().item<double>(), 0.75, 0.05);
}

// What is kept is scaled up: many draws together come near the result without dropout.
TEST(DecoderDropout, OfAttentionKeepsTheMean) {
  const at::NoGradGuard no_grad;
  auto config = dropping(tiny_llama(), "attention_dropout", 0.5);
  config["num_hidden_layers"] = 1;
  const auto model = make_tiny(config);
  at::manual_seed(1);
  const auto single = hidden_of(*model);
  at::Tensor sum = single.clone();
  for (int draw = 1; draw < 64; ++draw) sum += hidden_of(*model);
  model->eval();
  const auto expected = hidden_of(*model);
  const auto error_of = [&](const at::Tensor& hidden) {
    return (hidden - expected).abs().mean().item<double>();
  };
  EXPECT_LT(error_of(sum / 64), error_of(single) / 4);
}

}  // namespace
}  // namespace fullshard::testing
