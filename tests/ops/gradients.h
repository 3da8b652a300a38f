// SPDX-License-Identifier: Apache-2.0
// How operators are compared: values and gradients of a function under fixed random weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

namespace fullshard::ops {

using Inputs = std::vector<at::Tensor>;
using Operator = std::function<at::Tensor(const Inputs&)>;

// Copies of another dtype that are leaves of their own.
inline Inputs leaves(const Inputs& inputs, at::ScalarType dtype) {
  Inputs result;
  for (const auto& input : inputs) {
    result.push_back(input.detach().to(dtype).clone().requires_grad_());
  }
  return result;
}

// The sum of the output with `factors`, in fp64 when the output is.
inline at::Tensor weighted(const at::Tensor& output, const at::Tensor& factors) {
  return (output * factors.to(output.scalar_type())).sum();
}

struct Outcome {
  at::Tensor output;
  Inputs gradients;
};

inline Outcome run_operator(const Operator& function, const Inputs& inputs,
                            const at::Tensor& factors) {
  auto output = function(inputs);
  return {output.detach(), torch::autograd::grad({weighted(output, factors)}, inputs)};
}

inline double largest_difference(const at::Tensor& left, const at::Tensor& right) {
  if (left.numel() == 0) return 0;
  return (left.to(at::kDouble) - right.to(at::kDouble)).abs().max().item<double>();
}

// `own` on inputs of `dtype` against `expected` on the same values in fp64.
inline void expect_same(const Operator& own, const Operator& expected, const Inputs& inputs,
                        const at::Tensor& factors, at::ScalarType dtype, double tolerance) {
  const auto narrow = leaves(inputs, dtype);
  const auto found = run_operator(own, narrow, factors);
  const auto wanted =
      run_operator(expected, leaves(narrow, at::kDouble), factors.to(dtype).to(at::kDouble));
  EXPECT_EQ(found.output.scalar_type(), dtype);
  EXPECT_LE(largest_difference(found.output, wanted.output), tolerance) << "output";
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(found.gradients[i].sizes(), inputs[i].sizes());
    EXPECT_LE(largest_difference(found.gradients[i], wanted.gradients[i]), tolerance)
        << "gradient of input " << i;
  }
}

// The slope along random directions against central differences; inputs become fp64.
inline void expect_slopes(const Operator& function, const Inputs& given,
                          const at::Tensor& factors) {
  const auto inputs = leaves(given, at::kDouble);
  const auto gradients = run_operator(function, inputs, factors).gradients;
  at::NoGradGuard no_grad;
  constexpr double kStep = 1e-6;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto direction = at::randn_like(inputs[i]);
    const auto moved = [&](double by) {
      auto shifted = inputs;
      shifted[i] = inputs[i] + direction * by;
      return weighted(function(shifted), factors).item<double>();
    };
    const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
    EXPECT_NEAR((gradients[i] * direction).sum().item<double>(), slope, 1e-6) << "input " << i;
  }
}

}  // namespace fullshard::ops
