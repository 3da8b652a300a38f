// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/decoding/few_rows.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "fullshard/ops/kernels/few_rows_kernels.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/norm_projection.h"

namespace fullshard::ops {
namespace {

TEST(FewRows, GiveTheProductsOfLinear) {
  const at::NoGradGuard no_grad;
  for (const int64_t rows : {1, 2, 3, 5, 7, 8, 9, 16, 31, 32, 33}) {
    for (const int64_t width : {1, 15, 16, 48, 77}) {
      const auto input = at::randn({rows, 1, width}), weight = at::randn({13, width});
      const auto bias = at::randn({13}), residual = at::randn({rows, 1, 13});
      EXPECT_TRUE(
          at::allclose(few_rows_linear(input, weight), at::linear(input, weight), 1e-5, 1e-5));
      EXPECT_TRUE(at::allclose(few_rows_linear(input, weight, bias, residual),
                               at::linear(input, weight, bias) + residual, 1e-5, 1e-5))
          << rows << " x " << width;
    }
  }
}

TEST(FewRows, GiveTheProductsOfLinearInBf16) {
  const at::NoGradGuard no_grad;
  const auto input = at::randn({6, 100}), weight = at::randn({40, 100}), bias = at::randn({40});
  const auto exact =
      at::linear(input.to(at::kBFloat16).to(at::kFloat), weight.to(at::kBFloat16).to(at::kFloat),
                 bias.to(at::kBFloat16).to(at::kFloat));
  const auto found =
      few_rows_linear(input.to(at::kBFloat16), weight.to(at::kBFloat16), bias.to(at::kBFloat16));
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  // Summed in fp32 and rounded once.
  EXPECT_TRUE(at::equal(found, exact.to(at::kBFloat16)) ||
              at::allclose(found.to(at::kFloat), exact, 1.0 / 256, 1e-3));
}

// The reason why a sequence gets the same tokens in every batch.
TEST(FewRows, OfOneInputHaveTheSameBitsBesideAnyOthers) {
  const at::NoGradGuard no_grad;
  const auto input = at::randn({32, 200}), weight = at::randn({70, 200});
  const auto all = few_rows_linear(input, weight);
  for (const int64_t count : {1, 2, 4, 7, 8, 11, 17}) {
    EXPECT_TRUE(at::equal(few_rows_linear(input.narrow(0, 32 - count, count), weight),
                          all.narrow(0, 32 - count, count)));
  }
}

std::vector<float> product_with(InstructionSet set, int64_t num_inputs, int64_t width,
                                int64_t num_outputs) {
  const auto input = at::arange(num_inputs * width, at::kFloat).sin();
  const auto weight = at::arange(num_outputs * width, at::kFloat).cos();
  std::vector<float> packed(static_cast<size_t>(num_inputs * width));
  pack_few_rows(packed.data(), input.const_data_ptr<float>(), num_inputs, width);
  std::vector<float> output(static_cast<size_t>(num_inputs * num_outputs));
  const FewRowsProduct<float> product{.output = output.data(),
                                      .num_outputs = num_outputs,
                                      .packed = packed.data(),
                                      .num_inputs = num_inputs,
                                      .width = width,
                                      .weight = weight.const_data_ptr<float>()};
  // In two parts, as two threads would.
  multiply_few_rows_with(set, product, 0, num_outputs / 3);
  multiply_few_rows_with(set, product, num_outputs / 3, num_outputs);
  return output;
}

TEST(FewRows, HaveTheSameBitsWithEveryInstructionSet) {
  for (const int64_t num_inputs : {1, 2, 3, 5, 8, 9, 20}) {
    for (const int64_t width : {16, 33, 160}) {
      const auto plain = product_with(InstructionSet::plain, num_inputs, width, 41);
      for (const auto set : {InstructionSet::avx2, InstructionSet::avx512}) {
        if (set > best_instruction_set()) continue;
        EXPECT_EQ(product_with(set, num_inputs, width, 41), plain) << num_inputs << " x " << width;
      }
    }
  }
}

TEST(FewRows, ThatNeedGradientsHaveThem) {
  const auto input = at::randn({2, 8});
  auto weight = at::randn({4, 8});
  weight.set_requires_grad(true);
  few_rows_linear(input, weight).sum().backward();
  EXPECT_TRUE(at::allclose(weight.grad(), input.sum(0).expand({4, 8}), 1e-5, 1e-5));
}

TEST(FewRows, GiveWhatTheOperatorsOfTrainingGive) {
  const at::NoGradGuard no_grad;
  const auto input = at::randn({3, 1, 32});
  const NormTerms norm{.weight = at::randn({32}), .epsilon = 1e-5};
  const std::vector<at::Tensor> weights = {at::randn({20, 32}), at::randn({20, 32})};
  const std::vector<at::Tensor> biases = {at::randn({20}), {}};
  const auto found = few_rows_norm_projection(input, norm, weights, biases);
  const auto expected = norm_projection(input, norm, weights, biases);
  ASSERT_EQ(found.parts.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(at::allclose(found.parts[i], expected.projected.parts[i], 1e-4, 1e-4));
  }
  const auto down = at::randn({32, 20}), bias = at::randn({32});
  const std::vector<LinearTerms> layers = {{.weight = weights[0], .bias = biases[0]},
                                           {.weight = weights[1], .bias = biases[1]}};
  EXPECT_TRUE(at::allclose(
      few_rows_feed_forward(input, norm,
                            {layers, Activation::silu, {.weight = down, .bias = bias}}),
      activated_projection(expected.projected, Activation::silu, down, bias, input), 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(
      few_rows_feed_forward(input, norm,
                            {{layers[0]}, Activation::gelu, {.weight = down, .bias = bias}}),
      activated_projection({.parts = {found.parts[0]}}, Activation::gelu, down, bias, input), 1e-4,
      1e-4));
}

}  // namespace
}  // namespace fullshard::ops
