// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/embedding.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <utility>

#include "fullshard/nn/gradient_hook.h"

namespace fullshard::ops {
namespace {

struct Table {
  at::Tensor weight = at::randn({6, 4}).requires_grad_();
  at::Tensor indices = at::tensor({5, 1, 5, 0, 2, 1}, at::kLong).view({2, 3});
  at::Tensor factors = at::randn({2, 3, 4});

  at::Tensor torchs_gradient(int64_t padding_index = -1) {
    (at::embedding(weight, indices, padding_index) * factors).sum().backward();
    return std::exchange(weight.mutable_grad(), at::Tensor());
  }
  void backward(int64_t padding_index = -1) {
    (fullshard::embedding(indices, weight, padding_index) * factors).sum().backward();
  }
};

TEST(Embedding, EqualsTorchsWithItsGradient) {
  Table table;
  const auto expected = table.torchs_gradient();
  EXPECT_TRUE(at::equal(fullshard::embedding(table.indices, table.weight),
                        at::embedding(table.weight, table.indices)));
  table.backward();
  EXPECT_TRUE(at::equal(table.weight.grad(), expected));
}

TEST(Embedding, OverwritesTheSinkThenAddsToIt) {
  Table table;
  const auto expected = table.torchs_gradient();
  auto slot = at::full({6, 4}, 7.0);
  int opened = 0;
  nn::set_gradient_sink(table.weight, [&] { return nn::GradientSink{slot, opened++ > 0}; });
  table.backward();
  EXPECT_FALSE(table.weight.grad().defined());
  EXPECT_TRUE(at::equal(slot, expected));
  table.backward();
  EXPECT_TRUE(at::allclose(slot, expected * 2));
}

TEST(Embedding, GivesThePaddingRowNoGradient) {
  Table table;
  const auto expected = table.torchs_gradient(5);
  EXPECT_TRUE(at::equal(expected[5], at::zeros({4})));
  auto slot = at::full({6, 4}, 7.0);
  nn::set_gradient_sink(table.weight, [&] { return nn::GradientSink{slot, false}; });
  table.backward(5);
  EXPECT_TRUE(at::equal(slot, expected));
}

TEST(Embedding, FillsASinkOfAnotherDtype) {
  Table table;
  const auto expected = table.torchs_gradient();
  auto slot = at::full({6, 4}, 7.0, at::kDouble);
  nn::set_gradient_sink(table.weight, [&] { return nn::GradientSink{slot, false}; });
  table.backward();
  EXPECT_TRUE(at::allclose(slot.to(at::kFloat), expected));
}

TEST(Embedding, TheModuleCountsANegativePaddingIndexFromTheEnd) {
  Embedding module(torch::nn::EmbeddingOptions(6, 4).padding_idx(-1));
  const auto indices = at::tensor({5, 0}, at::kLong);
  module(indices).sum().backward();
  EXPECT_TRUE(at::equal(module->weight.grad()[5], at::zeros({4})));
  EXPECT_TRUE(at::equal(module->weight.grad()[0], at::ones({4})));
}

}  // namespace
}  // namespace fullshard::ops
