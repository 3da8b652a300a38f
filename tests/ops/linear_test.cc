// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "fullshard/nn/gradient_hook.h"

namespace fullshard::ops {
namespace {

struct Tensors {
  at::Tensor input = at::randn({2, 3, 4}).requires_grad_();
  at::Tensor weight = at::randn({5, 4}).requires_grad_();
  at::Tensor bias = at::randn({5}).requires_grad_();
};

TEST(Linear, EqualsTorchsWithItsGradients) {
  Tensors t;
  at::linear(t.input, t.weight, t.bias).pow(2).sum().backward();
  const at::Tensor expected[] = {t.input.grad(), t.weight.grad(), t.bias.grad()};
  for (auto* tensor : {&t.input, &t.weight, &t.bias}) tensor->mutable_grad() = at::Tensor();
  auto output = fullshard::linear(t.input, t.weight, t.bias);
  EXPECT_TRUE(at::equal(output, at::linear(t.input, t.weight, t.bias)));
  output.pow(2).sum().backward();
  EXPECT_TRUE(at::equal(t.input.grad(), expected[0]));
  EXPECT_TRUE(at::allclose(t.weight.grad(), expected[1]));
  EXPECT_TRUE(at::allclose(t.bias.grad(), expected[2]));
}

TEST(Linear, WritesItsWeightGradientIntoTheSink) {
  Tensors t;
  fullshard::linear(t.input, t.weight).sum().backward();
  const auto expected = std::exchange(t.weight.mutable_grad(), at::Tensor());
  auto slot = at::full({5, 4}, 7.0);
  int fired = 0, opened = 0;
  nn::set_gradient_hook(t.weight, [&](const at::Tensor& weight) {
    ++fired;
    EXPECT_FALSE(weight.grad().defined());
  });
  nn::set_gradient_sink(t.weight, [&] { return nn::GradientSink{slot, opened++ > 0}; });
  fullshard::linear(t.input, t.weight).sum().backward();
  EXPECT_EQ(fired, 1);
  EXPECT_TRUE(at::equal(slot, expected));
  fullshard::linear(t.input, t.weight).sum().backward();
  EXPECT_TRUE(at::allclose(slot, expected * 2));
}

// As in a replay, whose result nobody reads; that no product is made is tests/simulation's.
TEST(Linear, MayLeaveItsValuesUnwrittenForTheGraphAlone) {
  Tensors t;
  const auto residual = at::randn({2, 3, 5}).requires_grad_();
  const auto factors = at::randn({2, 3, 5});
  const auto gradients = [&](ResultUse use) {
    const auto output = fullshard::linear(t.input, t.weight, t.bias, residual, use);
    EXPECT_EQ(output.sizes(), factors.sizes());
    return torch::autograd::grad({output}, {t.input, t.weight, t.bias, residual}, {factors});
  };
  const auto expected = gradients(ResultUse::values);
  const auto found = gradients(ResultUse::graph_only);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  }
}

TEST(Linear, LeavesTheSinkAloneWhenNobodyWantsTheWeightsGradient) {
  Tensors t;
  nn::set_gradient_sink(t.weight, []() -> nn::GradientSink {
    ADD_FAILURE();
    return {};
  });
  const auto gradient =
      torch::autograd::grad({fullshard::linear(t.input, t.weight).sum()}, {t.input})[0];
  EXPECT_TRUE(gradient.defined());
}

TEST(Linear, WidensIntoASinkOfAnotherDtype) {
  auto input = at::randn({3, 4}, at::kBFloat16);
  auto weight = at::randn({5, 4}, at::kBFloat16).requires_grad_();
  auto slot = at::zeros({5, 4});
  nn::set_gradient_sink(weight, [&] { return nn::GradientSink{slot, false}; });
  fullshard::linear(input, weight).sum().backward();
  const auto expected = at::ones({5, 3}, at::kBFloat16).mm(input).to(at::kFloat);
  EXPECT_TRUE(at::equal(slot, expected));
}

TEST(Linear, IsTorchsModuleByNameAndShape) {
  Linear module(torch::nn::LinearOptions(4, 5).bias(false));
  EXPECT_EQ(module->named_parameters().keys(), std::vector<std::string>{"weight"});
  EXPECT_EQ(module->weight.sizes(), (std::vector<int64_t>{5, 4}));
  EXPECT_EQ(module(at::randn({2, 4})).sizes(), (std::vector<int64_t>{2, 5}));
}

}  // namespace
}  // namespace fullshard::ops
