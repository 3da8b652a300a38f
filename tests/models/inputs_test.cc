// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/inputs.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "tests/models/decoder_cases.h"

namespace fullshard::testing {
namespace {

std::string refusal(const std::string& config, const ModelInputs& inputs) {
  const auto model = make_tiny(config == "gpt2" ? tiny_gpt2() : tiny_llama());
  try {
    model->forward(inputs);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  return {};
}

TEST(Inputs, TokensAreOfTheVocabulary) {
  auto inputs = some_inputs();
  inputs.input_ids = at::full({1, 4}, 50, at::kLong);
  inputs.labels.reset();
  EXPECT_EQ(refusal("llama", inputs),
            "input_ids: tokens from 50 to 50, but the model's vocabulary has 50; use its own "
            "tokenizer");
  inputs.input_ids = at::full({1, 4}, -1, at::kLong);
  EXPECT_EQ(refusal("gpt2", inputs),
            "input_ids: tokens from -1 to -1, but the model's vocabulary has 50; use its own "
            "tokenizer");
}

TEST(Inputs, LabelsAreOfTheVocabularyOrNone) {
  auto inputs = some_inputs(1, 4);
  inputs.labels = at::full({1, 4}, -100, at::kLong);
  EXPECT_EQ(refusal("gpt2", inputs), "");
  inputs.labels.select(1, 2).fill_(50);
  EXPECT_EQ(refusal("gpt2", inputs),
            "labels: labels from 0 to 50, but the model's vocabulary has 50; -100 marks no label");
  inputs.labels = at::zeros({1, 3}, at::kLong);
  EXPECT_EQ(refusal("gpt2", inputs),
            "labels: expected int64 of shape [1, 4], found Long of shape [1, 3]");
}

TEST(Inputs, LearntPositionsEnd) {
  EXPECT_EQ(refusal("gpt2", some_inputs(1, 24)), "");
  EXPECT_EQ(refusal("gpt2", some_inputs(1, 25)),
            "input_ids: the sequence has 25 tokens, but the model has 24 positions; cut the "
            "sequences");
  EXPECT_EQ(refusal("llama", some_inputs(1, 25)), "");
}

TEST(Inputs, AreInt64OfTwoDimensions) {
  ModelInputs inputs;
  inputs.input_ids = at::zeros({4}, at::kLong);
  EXPECT_EQ(refusal("llama", inputs),
            "input_ids: expected int64 tokens of shape [batch, sequence]");
  inputs.input_ids = at::zeros({1, 4}, at::kInt);
  EXPECT_EQ(refusal("llama", inputs),
            "input_ids: expected int64 tokens of shape [batch, sequence]");
}

TEST(Inputs, AMaskThatHidesNothingIsNone) {
  EXPECT_FALSE(models::padding_mask({}).defined());
  EXPECT_FALSE(models::padding_mask(at::ones({2, 3}, at::kLong)).defined());
  EXPECT_TRUE(models::padding_mask(at::zeros({2, 3}, at::kLong)).defined());
}

}  // namespace
}  // namespace fullshard::testing
