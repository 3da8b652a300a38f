// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/activation.h"

#include <ATen/Parallel.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/ops/kernels/vector_exp.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

TEST(VectorExp, IsWithinTwoUnitsInTheLastPlace) {
  for (float x = -87.3f; x < 88.3f; x += 0.00731f) {
    const double exact = std::exp(static_cast<double>(x));
    const auto nearest = static_cast<float>(exact);
    const double unit = static_cast<double>(std::nextafter(nearest, INFINITY)) - nearest;
    ASSERT_LE(std::abs(vector_exp(x) - exact), 2 * unit) << x;
  }
}

TEST(VectorExp, EndsInZeroAndStaysFinite) {
  EXPECT_EQ(vector_exp(0.0f), 1.0f);
  EXPECT_EQ(vector_exp(-88.0f), 0.0f);
  EXPECT_EQ(vector_exp(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_GT(vector_exp(1000.0f), 2e38f);
  EXPECT_TRUE(std::isfinite(vector_exp(1000.0f)));
  EXPECT_TRUE(std::isnan(vector_exp(std::numeric_limits<float>::quiet_NaN())));
}

struct ActivationCase {
  const char* name;
  Operator own, torchs;
};

std::vector<ActivationCase> gated_cases() {
  return {{"swiglu", [](const Inputs& in) { return swiglu(in[0], in[1]); },
           [](const Inputs& in) { return at::silu(in[0]) * in[1]; }},
          {"geglu tanh", [](const Inputs& in) { return geglu(in[0], in[1], Gelu::tanh); },
           [](const Inputs& in) { return at::gelu(in[0], "tanh") * in[1]; }},
          {"geglu exact", [](const Inputs& in) { return geglu(in[0], in[1], Gelu::exact); },
           [](const Inputs& in) { return at::gelu(in[0], "none") * in[1]; }}};
}

std::vector<ActivationCase> plain_cases() {
  return {{"tanh", [](const Inputs& in) { return gelu(in[0], Gelu::tanh); },
           [](const Inputs& in) { return at::gelu(in[0], "tanh"); }},
          {"exact", [](const Inputs& in) { return gelu(in[0], Gelu::exact); },
           [](const Inputs& in) { return at::gelu(in[0], "none"); }}};
}

TEST(GatedActivations, EqualTorchsWithTheirGradients) {
  for (const auto& [name, own, torchs] : gated_cases()) {
    SCOPED_TRACE(name);
    for (const int64_t size : {0, 1, 7, 16, 1001}) {
      expect_same(own, torchs, {at::randn({3, size}) * 3, at::randn({3, size})},
                  at::randn({3, size}), at::kFloat, 1e-5);
    }
    expect_same(own, torchs, {at::randn({50}), at::randn({50})}, at::randn({50}), at::kBFloat16,
                0.05);
    expect_slopes(own, {at::randn({9}), at::randn({9})}, at::randn({9}));
  }
}

TEST(Gelu, EqualsTorchsWithItsGradients) {
  for (const auto& [name, own, torchs] : plain_cases()) {
    SCOPED_TRACE(name);
    expect_same(own, torchs, {at::randn({7, 143}) * 3}, at::randn({7, 143}), at::kFloat, 1e-5);
    expect_same(own, torchs, {at::randn({50})}, at::randn({50}), at::kBFloat16, 0.05);
    expect_slopes(own, {at::randn({9})}, at::randn({9}));
  }
}

TEST(Activations, StayFiniteFarFromZero) {
  const auto far = at::linspace(-1e4, 1e4, 101);
  const auto ones = at::ones({101});
  for (const auto& [name, own, torchs] : gated_cases()) {
    SCOPED_TRACE(name);
    expect_same(own, torchs, {far, ones}, ones, at::kFloat, 1e-3);
  }
  expect_same(plain_cases()[0].own, plain_cases()[0].torchs, {far}, ones, at::kFloat, 1e-3);
}

TEST(Activations, TakeStridedInputsAndGradients) {
  const auto halves = [](const Inputs& in) { return in[0].chunk(2, -1); };
  expect_same([&](const Inputs& in) { return swiglu(halves(in)[0], halves(in)[1]).t(); },
              [&](const Inputs& in) { return (at::silu(halves(in)[0]) * halves(in)[1]).t(); },
              {at::randn({5, 14})}, at::randn({7, 5}), at::kFloat, 1e-5);
  expect_same([](const Inputs& in) { return gelu(in[0].t(), Gelu::tanh); },
              [](const Inputs& in) { return at::gelu(in[0].t(), "tanh"); }, {at::randn({5, 14})},
              at::randn({14, 5}), at::kFloat, 1e-5);
}

TEST(Activations, GiveTheSameBitsOnOneAndTwoThreads) {
  const Inputs inputs = leaves({at::randn({70001}), at::randn({70001})}, at::kFloat);
  const auto factors = at::randn({70001});
  const auto on = [&](int threads) {
    at::set_num_threads(threads);
    return run_operator(gated_cases()[0].own, inputs, factors);
  };
  const int before = at::get_num_threads();
  const auto two = on(2), one = on(1);
  at::set_num_threads(before);
  EXPECT_TRUE(at::equal(one.output, two.output));
  EXPECT_TRUE(at::equal(one.gradients[0], two.gradients[0]));
  EXPECT_TRUE(at::equal(one.gradients[1], two.gradients[1]));
}

TEST(Activations, RefuseSecondDerivativesAndOtherShapes) {
  auto gate = at::randn({4}).requires_grad_();
  const auto output = swiglu(gate, at::randn({4})).sum();
  EXPECT_THAT([&] { torch::autograd::grad({output}, {gate}, {}, true, true); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("second derivatives")));
  EXPECT_THAT([&] { swiglu(gate, at::randn({3})); },
              testing::ThrowsMessage<Error>(
                  "swiglu: gate has 4 elements, up has 3; their shapes must agree"));
}

}  // namespace
}  // namespace fullshard::ops
