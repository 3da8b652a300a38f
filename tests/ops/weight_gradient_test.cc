// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/weight_gradient.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "fullshard/nn/gradient_hook.h"
#include "fullshard/ops/wide_gradient.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kWidth = 4;

// Three weights of 2, 3 and 1 rows over one input, with the gradients of their outputs packed.
struct GradientCase {
  std::vector<at::Tensor> parameters;
  at::Tensor input = at::randn({2, 5, kWidth});
  at::Tensor gradient = at::randn({2, 5, 6});

  GradientCase() {
    for (const int64_t rows : {2, 3, 1}) {
      parameters.push_back(at::randn({rows, kWidth}).requires_grad_());
    }
  }
  at::Tensor expected() const { return gradient.view({10, 6}).t().mm(input.view({10, kWidth})); }
};

void give_sinks(const GradientCase& c, const at::Tensor& slots, const std::vector<int64_t>& begins,
                bool accumulate) {
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto slot = slots.narrow(0, begins[i], c.parameters[i].size(0));
    nn::set_gradient_sink(c.parameters[i], [=] { return nn::GradientSink{slot, accumulate}; });
  }
}

TEST(WeightGradients, AreReturnedWithoutSinks) {
  const GradientCase c;
  const auto made = weight_gradients(c.parameters, {true, true, true}, c.input, c.gradient);
  EXPECT_TRUE(at::allclose(at::cat({made[0], made[1], made[2]}), c.expected()));
}

TEST(WeightGradients, FillNeighbouringAndDistantSinksAlike) {
  for (const std::vector<int64_t>& begins : {std::vector<int64_t>{0, 2, 5}, {4, 0, 3}}) {
    for (const bool accumulate : {false, true}) {
      const GradientCase c;
      const auto slots = at::full({6, kWidth}, 3.0);
      give_sinks(c, slots, begins, accumulate);
      const auto made = weight_gradients(c.parameters, {true, true, true}, c.input, c.gradient);
      for (const auto& gradient : made) EXPECT_FALSE(gradient.defined());
      const auto expected = c.expected();
      int64_t first = 0;
      for (size_t i = 0; i < begins.size(); ++i) {
        const int64_t rows = c.parameters[i].size(0);
        const auto wanted = expected.narrow(0, first, rows) + (accumulate ? 3.0 : 0.0);
        EXPECT_TRUE(at::allclose(slots.narrow(0, begins[i], rows), wanted, 1e-4, 1e-5));
        first += rows;
      }
    }
  }
}

TEST(WeightGradients, LeaveUnwantedSinksClosed) {
  const GradientCase c;
  const auto slots = at::zeros({6, kWidth});
  give_sinks(c, slots, {0, 2, 5}, false);
  nn::set_gradient_sink(c.parameters[1], []() -> nn::GradientSink {
    ADD_FAILURE();
    return {};
  });
  weight_gradients(c.parameters, {true, false, true}, c.input, c.gradient);
  EXPECT_TRUE(at::allclose(slots.narrow(0, 0, 2), c.expected().narrow(0, 0, 2)));
  EXPECT_TRUE(at::equal(slots.narrow(0, 2, 3), at::zeros({3, kWidth})));
  EXPECT_TRUE(at::allclose(slots.narrow(0, 5, 1), c.expected().narrow(0, 5, 1)));
}

TEST(WideGradient, IsTheSinkWhenThatIsWide) {
  const auto parameter = at::randn({3}, at::kBFloat16).requires_grad_();
  auto slot = at::full({3}, 1.0);
  nn::set_gradient_sink(parameter, [&] { return nn::GradientSink{slot, true}; });
  const WideGradient gradient(parameter);
  EXPECT_TRUE(gradient.target().values.is_same(slot));
  EXPECT_TRUE(gradient.target().accumulate);
  EXPECT_FALSE(gradient.finish().defined());
}

TEST(WideGradient, IsCopiedOrAddedIntoANarrowSink) {
  for (const bool accumulate : {false, true}) {
    const auto parameter = at::randn({3}, at::kBFloat16).requires_grad_();
    auto slot = at::full({3}, 1.0, at::kBFloat16);
    nn::set_gradient_sink(parameter, [&] { return nn::GradientSink{slot, accumulate}; });
    const WideGradient gradient(parameter);
    gradient.target().values.fill_(2);
    EXPECT_FALSE(gradient.finish().defined());
    EXPECT_TRUE(at::equal(slot, at::full({3}, accumulate ? 3.0 : 2.0, at::kBFloat16)));
  }
}

TEST(WideGradient, IsReturnedInTheParametersDtypeWithoutASink) {
  const WideGradient gradient(at::randn({3}, at::kBFloat16).requires_grad_());
  gradient.target().values.fill_(2);
  EXPECT_TRUE(at::equal(gradient.finish(), at::full({3}, 2.0, at::kBFloat16)));
}

TEST(WideGradient, IsNothingWhenNobodyWantsIt) {
  const WideGradient gradient{at::Tensor()};
  EXPECT_FALSE(gradient.target().values.defined());
  EXPECT_FALSE(gradient.finish().defined());
}

}  // namespace
}  // namespace fullshard::ops
