// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

constexpr double kEpsilon = 1e-5;

at::Tensor own_norm(const Inputs& inputs) { return rms_norm(inputs[0], inputs[1], kEpsilon); }
at::Tensor torchs_norm(const Inputs& inputs) {
  return at::rms_norm(inputs[0], inputs[1].sizes(), inputs[1], kEpsilon);
}

// Widths around the lanes of the kernel, rows around its blocks.
TEST(RmsNorm, EqualsTorchsWithItsGradients) {
  for (const int64_t width : {1, 5, 31, 32, 33, 288}) {
    for (const int64_t rows : {1, 3, 64, 130}) {
      SCOPED_TRACE(testing::Message() << rows << " rows of " << width);
      // A single element near zero has a slope of up to 1 / sqrt(epsilon).
      expect_same(own_norm, torchs_norm, {at::randn({rows, width}), at::randn({width})},
                  at::randn({rows, width}), at::kFloat, width == 1 ? 1e-3 : 3e-5);
    }
  }
}

TEST(RmsNorm, HasTheSlopesOfItsValues) {
  expect_slopes(own_norm, {at::randn({2, 3, 5}), at::randn({5})}, at::randn({2, 3, 5}));
}

TEST(RmsNorm, RoundsBf16OnceBeforeTheWeight) {
  expect_same(own_norm, torchs_norm, {at::randn({4, 40}), at::randn({40})}, at::randn({4, 40}),
              at::kBFloat16, 0.06);
  const auto input = at::randn({4, 40}, at::kBFloat16), weight = at::randn({40}, at::kBFloat16);
  const auto wide = input.to(at::kFloat);
  const auto inverse = (wide.square().mean(-1, true) + kEpsilon).rsqrt();
  EXPECT_TRUE(
      at::equal(rms_norm(input, weight, kEpsilon), weight * (wide * inverse).to(at::kBFloat16)));
}

TEST(RmsNorm, TakesStridedInputs) {
  const auto input = at::randn({6, 4, 3}).transpose(0, 1);
  const auto weight = at::randn({6}).slice(0, 0, 6, 2);
  EXPECT_TRUE(at::equal(rms_norm(input, weight, kEpsilon),
                        rms_norm(input.contiguous(), weight.contiguous(), kEpsilon)));
  expect_same(
      [](const Inputs& in) { return rms_norm(in[0].transpose(0, 1), in[1], kEpsilon); },
      [](const Inputs& in) { return at::rms_norm(in[0].transpose(0, 1), {3}, in[1], kEpsilon); },
      {at::randn({6, 4, 3}), at::randn({3})}, at::randn({4, 6, 3}), at::kFloat, 1e-5);
}

TEST(RmsNorm, TakesAnEmptyBatch) {
  auto input = at::zeros({0, 8}).requires_grad_();
  auto weight = at::randn({8}).requires_grad_();
  auto output = rms_norm(input, weight, kEpsilon);
  EXPECT_EQ(output.sizes(), input.sizes());
  output.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({8})));
}

TEST(RmsNorm, GivesTheSameBitsOnOneAndTwoThreads) {
  const Inputs inputs = leaves({at::randn({500, 100}), at::randn({100})}, at::kFloat);
  const auto factors = at::randn({500, 100});
  const auto on = [&](int threads) {
    at::set_num_threads(threads);
    return run_operator(own_norm, inputs, factors);
  };
  const int before = at::get_num_threads();
  const auto two = on(2), one = on(1);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.output, two.output));
  EXPECT_TRUE(at::equal(one.gradients[0], two.gradients[0]));
  EXPECT_TRUE(at::equal(one.gradients[1], two.gradients[1]));
}

TEST(RmsNorm, RefusesSecondDerivatives) {
  auto input = at::randn({2, 4}).requires_grad_();
  const auto output = rms_norm(input, at::randn({4}), kEpsilon).sum();
  EXPECT_THAT([&] { torch::autograd::grad({output}, {input}, {}, true, true); },
              testing::ThrowsMessage<Error>(
                  "rms_norm: second derivatives are not supported; call backward without "
                  "create_graph"));
}

TEST(RmsNorm, NamesWidthsThatDisagree) {
  EXPECT_THAT(
      [] {
        rms_norm(at::randn({2, 4}), at::randn({5}), kEpsilon);
      },
      testing::ThrowsMessage<Error>(
          "rms_norm: the input's last dimension is 4, the weight has 5 elements; they must "
          "agree"));
}

TEST(LayerNorm, EqualsTorchsWithAndWithoutBias) {
  const auto input = at::randn({3, 7}), weight = at::randn({7}), bias = at::randn({7});
  EXPECT_TRUE(at::equal(layer_norm(input, weight, bias, kEpsilon),
                        at::layer_norm(input, {7}, weight, bias, kEpsilon)));
  EXPECT_TRUE(at::equal(layer_norm(input, weight, {}, kEpsilon),
                        at::layer_norm(input, {7}, weight, {}, kEpsilon)));
  expect_slopes([](const Inputs& in) { return layer_norm(in[0], in[1], in[2], kEpsilon); },
                {input, weight, bias}, at::randn({3, 7}));
}

TEST(Norms, StartAtOnesAndZerosUnderTorchsNames) {
  RmsNorm rms(4, kEpsilon);
  LayerNorm layer(4, kEpsilon);
  EXPECT_EQ(rms->named_parameters().keys(), (std::vector<std::string>{"weight"}));
  EXPECT_EQ(layer->named_parameters().keys(), (std::vector<std::string>{"weight", "bias"}));
  const auto input = at::randn({2, 4});
  EXPECT_TRUE(at::allclose(rms(input), at::rms_norm(input, {4}, {}, kEpsilon)));
  EXPECT_TRUE(
      at::equal(layer(input), at::layer_norm(input, {4}, at::ones({4}), at::zeros({4}), kEpsilon)));
}

}  // namespace
}  // namespace fullshard::ops
