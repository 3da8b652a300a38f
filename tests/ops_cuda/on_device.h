// SPDX-License-Identifier: Apache-2.0
// How results of the GPU are compared: relative to the largest value, with the figures on failure.
#pragma once

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <string>
#include <vector>

#include "tests/ops/gradients.h"

namespace fullshard::ops {

// Tests of this fixture need a GPU.
class OnDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(at::globalContext().hasCUDA()) << "no GPU is visible; this program needs one";
  }
};

inline at::Tensor device_randn(at::IntArrayRef sizes, at::ScalarType dtype = at::kFloat) {
  return at::randn(sizes, at::TensorOptions().device(at::kCUDA).dtype(at::kFloat)).to(dtype);
}

inline at::Tensor bf16_randn(at::IntArrayRef sizes) { return device_randn(sizes, at::kBFloat16); }

// What rounding to a dtype, some times over, may do to results that are sums.
inline double tolerance_of(at::ScalarType dtype) { return dtype == at::kFloat ? 2e-5 : 1.5e-2; }

inline void expect_close(const at::Tensor& found, const at::Tensor& wanted, double relative,
                         const std::string& what) {
  ASSERT_TRUE(found.defined()) << what;
  ASSERT_EQ(found.sizes(), wanted.sizes()) << what;
  if (found.numel() == 0) return;
  const auto exact = wanted.detach().to(found.device(), at::kDouble);
  const auto wide = found.detach().to(at::kDouble);
  const double scale = exact.abs().max().item<double>();
  const double worst = (wide - exact).abs().max().item<double>();
  EXPECT_TRUE(worst <= relative * scale + 1e-12)
      << what << ": largest difference " << worst << " of values up to " << scale << ", allowed "
      << relative << " of that; at " << (wide - exact).abs().argmax().item<int64_t>() << " of "
      << exact.numel();
}

// `function` in `dtype` on the GPU against itself in fp64, where every operator is a composition;
// then once more for the same bits.
inline void expect_same_as_wide(const Operator& function, const Inputs& inputs,
                                at::ScalarType dtype, double relative, bool same_bits = true) {
  const auto narrow = leaves(inputs, dtype);
  auto shape = function(narrow);
  const auto factors = device_randn(shape.sizes(), dtype);
  const auto found = run_operator(function, narrow, factors);
  const auto wanted = run_operator(function, leaves(narrow, at::kDouble), factors.to(at::kDouble));
  EXPECT_EQ(found.output.scalar_type(), dtype);
  expect_close(found.output, wanted.output, relative, "output");
  for (size_t i = 0; i < inputs.size(); ++i) {
    expect_close(found.gradients[i], wanted.gradients[i], relative,
                 "gradient of input " + std::to_string(i));
  }
  if (!same_bits) return;
  const auto again = run_operator(function, narrow, factors);
  EXPECT_TRUE(at::equal(again.output, found.output)) << "other bits on a second run";
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::equal(again.gradients[i], found.gradients[i]))
        << "other bits on a second run, gradient of input " << i;
  }
}

inline constexpr at::ScalarType kDeviceDtypes[] = {at::kFloat, at::kBFloat16};

}  // namespace fullshard::ops
