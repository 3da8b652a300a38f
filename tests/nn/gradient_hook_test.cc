// SPDX-License-Identifier: Apache-2.0
#include "fullshard/nn/gradient_hook.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "fullshard/base/error.h"

namespace fullshard::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor parameter() { return at::ones({2, 3}).requires_grad_(true); }

// An operator that respects the sink: its weight gradient is the output gradient.
struct AddInto : torch::autograd::Function<AddInto> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight) {
    context->save_for_backward({weight});
    return x + weight;
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const GradientSink sink = open_gradient_sink(context->get_saved_variables()[0]);
    if (!sink.target.defined()) return {gradients[0], gradients[0]};
    sink.accumulate ? sink.target.add_(gradients[0]) : sink.target.copy_(gradients[0]);
    return {gradients[0], at::Tensor()};
  }
};

TEST(GradientHook, FiresOncePerBackwardWithTheGradient) {
  const at::Tensor weight = parameter();
  std::vector<at::Tensor> seen;
  set_gradient_hook(weight, [&](const at::Tensor& p) { seen.push_back(p.grad().clone()); });
  (weight * 2 + weight).sum().backward();
  ASSERT_EQ(seen.size(), 1);
  EXPECT_TRUE(at::equal(seen[0], at::ones({2, 3}) * 3));
}

TEST(GradientHook, FiresWithoutGradientWhenTheSinkTookIt) {
  const at::Tensor weight = parameter(), sink = at::zeros({2, 3});
  int fired = 0;
  set_gradient_hook(weight, [&](const at::Tensor& p) {
    EXPECT_FALSE(p.grad().defined());
    ++fired;
  });
  int opened = 0;
  set_gradient_sink(weight, [&] { return GradientSink{sink, opened++ > 0}; });
  const at::Tensor x = at::ones({2, 3});
  (AddInto::apply(x, weight).sum() + 2 * AddInto::apply(x, weight).sum()).backward();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(opened, 2);
  EXPECT_TRUE(at::equal(sink, at::ones({2, 3}) * 3));
}

TEST(GradientHook, ReplacingTheFunctionKeepsTheSink) {
  const at::Tensor weight = parameter(), sink = at::zeros({2, 3});
  int first = 0, second = 0;
  set_gradient_hook(weight, [&](const at::Tensor&) { ++first; });
  set_gradient_sink(weight, [&] { return GradientSink{sink, true}; });
  set_gradient_hook(weight, [&](const at::Tensor&) { ++second; });
  EXPECT_TRUE(open_gradient_sink(weight).target.is_same(sink));
  weight.sum().backward();
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(GradientHook, ClearsWhatItSet) {
  const at::Tensor weight = parameter();
  int fired = 0;
  set_gradient_hook(weight, [&](const at::Tensor&) { ++fired; });
  set_gradient_sink(weight, [] { return GradientSink{at::zeros({2, 3}), true}; });
  set_gradient_sink(weight, {});
  EXPECT_FALSE(open_gradient_sink(weight).target.defined());
  clear_gradient_hook(weight);
  clear_gradient_hook(weight);
  weight.sum().backward();
  EXPECT_EQ(fired, 0);
}

TEST(GradientHook, HasNoSinkWhereNothingWasSet) {
  EXPECT_FALSE(open_gradient_sink(at::ones({1})).target.defined());
  EXPECT_FALSE(open_gradient_sink(at::Tensor()).target.defined());
  EXPECT_FALSE(open_gradient_sink(parameter()).target.defined());
}

TEST(GradientHook, RefusesWhatIsNotAParameter) {
  EXPECT_THROW(set_gradient_hook(at::ones({1}), [](const at::Tensor&) {}), Error);
  EXPECT_THROW(set_gradient_hook(parameter() * 2, [](const at::Tensor&) {}), Error);
  EXPECT_THROW(set_gradient_sink(at::ones({1}), [] { return GradientSink(); }), Error);
}

TEST(GradientSink, MayTakeAWholeGradient) {
  const at::Tensor weight = parameter();
  const at::Tensor gradient = at::ones({2, 3});
  EXPECT_FALSE(give_gradient(weight, gradient));
  at::Tensor taken;
  set_gradient_sink(
      weight, [] { return GradientSink(); },
      [&](const at::Tensor& whole) {
        taken = whole;
        return true;
      });
  EXPECT_TRUE(give_gradient(weight, gradient));
  EXPECT_TRUE(taken.is_same(gradient));
  set_gradient_sink(weight, {});
  EXPECT_FALSE(give_gradient(weight, gradient));
}

}  // namespace
}  // namespace fullshard::nn
