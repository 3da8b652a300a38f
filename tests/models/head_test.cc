// SPDX-License-Identifier: Apache-2.0
#include "fullshard/models/common/head.h"

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "tests/models/decoder_cases.h"
#include "tests/models/encoder_cases.h"

namespace fullshard::testing {
namespace {

at::Tensor torch_loss(const at::Tensor& logits, const at::Tensor& labels, double smoothing) {
  return at::cross_entropy_loss(logits.flatten(0, 1), labels.flatten(), {}, at::Reduction::Mean,
                                -100, smoothing);
}

TEST(Head, TheLastTokenHasNoNext) {
  const auto labels = at::tensor({1, 2, 3, 4, -100, 6}, at::kLong).view({2, 3});
  const auto expected = at::tensor({2, 3, -100, -100, 6, -100}, at::kLong).view({2, 3});
  EXPECT_TRUE(at::equal(models::next_token_labels(labels), expected));
  const auto single = at::tensor({5}, at::kLong).view({1, 1});
  EXPECT_EQ(models::next_token_labels(single).item<int64_t>(), -100);
}

TEST(Head, LossIsTorchsWithSmoothingAndMaskedLabels) {
  const auto model = make_tiny(tiny_llama());
  auto inputs = some_inputs();
  inputs.labels = inputs.labels.clone();
  inputs.labels.select(1, 5).fill_(-100);
  inputs.wants_logits = true;
  for (const double smoothing : {0.0, 0.1}) {
    inputs.label_smoothing = smoothing;
    const auto outputs = model->forward(inputs);
    const auto expected =
        torch_loss(outputs.logits, models::next_token_labels(inputs.labels), smoothing);
    expect_close("loss", outputs.loss, expected);
  }
}

TEST(Head, LabelsThatAreNextTokensAreNotMoved) {
  const auto model = make_tiny(tiny_llama());
  auto inputs = some_inputs();
  const auto moved = model->forward(inputs).loss;
  inputs.labels = models::next_token_labels(inputs.labels);
  inputs.labels_are_next = true;
  EXPECT_TRUE(at::equal(model->forward(inputs).loss, moved));
}

TEST(Head, LogitsComeWithoutLabelsOrWhenWanted) {
  const auto model = make_tiny(tiny_gpt2());
  auto inputs = some_inputs();
  EXPECT_FALSE(model->forward(inputs).logits.defined());
  inputs.wants_logits = true;
  const auto wanted = model->forward(inputs);
  inputs.labels.reset();
  inputs.wants_logits = false;
  const auto bare = model->forward(inputs);
  EXPECT_FALSE(bare.loss.defined());
  EXPECT_TRUE(at::equal(bare.logits, wanted.logits));
  EXPECT_EQ(bare.logits.sizes(), at::IntArrayRef({2, 12, 50}));
  EXPECT_EQ(bare.hidden.sizes(), at::IntArrayRef({2, 12, 32}));
}

TEST(Head, KeysThatATokenSees) {
  EXPECT_EQ(models::mean_causal_keys(100, 0), 50);
  EXPECT_EQ(models::mean_causal_keys(100, 100), 50);
  EXPECT_EQ(models::mean_causal_keys(100, 20), 18);
}

}  // namespace
}  // namespace fullshard::testing
