// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/initialisation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

at::Generator generator_of(uint64_t seed) { return at::make_generator<at::CPUGeneratorImpl>(seed); }

// Mean 0 and the deviation, each within five of its own standard errors.
void expect_normal(const std::string& name, const at::Tensor& values, double deviation) {
  const auto count = static_cast<double>(values.numel());
  EXPECT_NEAR(values.mean().item<double>(), 0, 5 * deviation / std::sqrt(count)) << name;
  EXPECT_NEAR(values.std().item<double>(), deviation, 5 * deviation / std::sqrt(2 * count)) << name;
}

void expect_constant(const std::string& name, const at::Tensor& values, double value) {
  EXPECT_TRUE(values.eq(value).all().item<bool>()) << name;
}

TEST(Initialisation, NormalValuesAreRoundedNotDrawnAnewForOtherDtypes) {
  auto plain = at::empty({33, 7}, at::kFloat);
  models::initialise_normal(plain, 0.5, generator_of(3));
  expect_normal("plain", plain, 0.5);
  auto half = at::empty({33, 7}, at::kBFloat16);
  models::initialise_normal(half, 0.5, generator_of(3));
  EXPECT_TRUE(at::equal(half, plain.to(at::kBFloat16)));
  auto strided = at::empty({7, 33}, at::kFloat).t();
  models::initialise_normal(strided, 0.5, generator_of(3));
  EXPECT_TRUE(at::equal(strided, plain));
}

TEST(Initialisation, WorksOnParameters) {
  auto parameter = at::empty({4, 4}, at::kFloat).requires_grad_();
  models::initialise_constant(parameter, 2);
  models::zero_row(parameter, 1);
  EXPECT_EQ(parameter.sum().item<double>(), 24);
  EXPECT_EQ(parameter.detach()[1].sum().item<double>(), 0);
}

TEST(Initialisation, OfGpt2IsTheOriginals) {
  auto config = tiny_gpt2();
  config.update({{"initializer_range", 0.05}, {"tie_word_embeddings", false}});
  const auto model = make_tiny(config);
  for (const auto& name : parameter_names(*model)) {
    const auto values = initial_values(*model, name);
    if (name.ends_with(".bias")) {
      expect_constant(name, values, 0);
    } else if (name.find("ln_") != std::string::npos) {
      expect_constant(name, values, 1);
    } else {
      expect_normal(name, values, name.ends_with("c_proj.weight") ? 0.05 / 2 : 0.05);
    }
  }
}

TEST(Initialisation, OfLlamaIsTheOriginals) {
  auto config = tiny_llama();
  config.update({{"attention_bias", true}, {"mlp_bias", true}, {"pad_token_id", 7}});
  const auto model = make_tiny(config);
  for (const auto& name : parameter_names(*model)) {
    const auto values = initial_values(*model, name);
    if (name.ends_with(".bias")) {
      expect_constant(name, values, 0);
    } else if (name.ends_with("norm.weight")) {
      expect_constant(name, values, 1);
    } else {
      expect_normal(name, values, 0.02);
    }
  }
  expect_constant("padding", initial_values(*model, "model.embed_tokens.weight")[7], 0);
  EXPECT_NE(initial_values(*model, "lm_head.weight")[7].abs().sum().item<double>(), 0);
}

TEST(Initialisation, DependsOnTheGeneratorOnly) {
  for (const auto& config : {tiny_gpt2(), tiny_llama()}) {
    const auto first = make_tiny(config);
    const auto second = make_tiny(config);
    for (const auto& name : parameter_names(*first)) {
      EXPECT_TRUE(at::equal(initial_values(*first, name, 5), initial_values(*second, name, 5)));
    }
    const auto name = parameter_names(*first).front();
    EXPECT_FALSE(at::equal(initial_values(*first, name, 5), initial_values(*first, name, 6)));
  }
}

}  // namespace
}  // namespace fullshard::testing
