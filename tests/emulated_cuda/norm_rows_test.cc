// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/norm_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "fullshard/ops/cuda/largest_parts.h"
#include "fullshard/ops/cuda/partial_rows.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

constexpr float kEpsilon = 1e-5f;

struct NormCase {
  at::ScalarType dtype;
  bool centred;
  int64_t rows, width;
  int shift = 0;  // of every array, from a multiple of 16 bytes
};

std::ostream& operator<<(std::ostream& to, const NormCase& given) {
  return to << (given.centred ? "layer norm, " : "RMS norm, ") << given.rows << " rows of "
            << given.width << " " << given.dtype << ", shifted by " << given.shift;
}

// Around the borders of the kernels' forms: a warp's registers, a block's, none.
std::vector<NormCase> norm_cases() {
  std::vector<NormCase> cases;
  for (const auto dtype : kKernelDtypes) {
    for (const bool centred : {false, true}) {
      for (const int64_t width : {7, 8, 100, 384, 768, 1024}) {
        cases.push_back({dtype, centred, 11, width});
      }
      for (const int64_t width : {1032, 2050, 4096, 8200, 16'400}) {
        cases.push_back({dtype, centred, 2, width});
      }
      cases.push_back({dtype, centred, 1, 64});
      cases.push_back({dtype, centred, 2, 64, 1});
    }
  }
  cases.push_back({at::kBFloat16, true, 270, 7});  // more rows than there are blocks
  return cases;
}

struct NormInputs {
  at::Tensor input, weight, bias, to_output, added;

  explicit NormInputs(const NormCase& given) {
    const auto values = [&](at::IntArrayRef sizes) {
      return shifted_by(at::randn(sizes).to(given.dtype), given.shift);
    };
    input = values({given.rows, given.width});
    weight = values({given.width});
    bias = values({given.width});
    to_output = values({given.rows, given.width});
    added = values({given.rows, given.width});
  }
};

// In fp64, with gradients; RMS norm has no bias.
struct ExpectedNorm {
  at::Tensor output, to_input, to_weight, to_bias;

  ExpectedNorm(const NormCase& given, const NormInputs& inputs) {
    const auto leaf = [](const at::Tensor& tensor) {
      return tensor.to(at::kDouble).requires_grad_();
    };
    const auto x = leaf(inputs.input), weight = leaf(inputs.weight), bias = leaf(inputs.bias);
    output = given.centred
                 ? at::layer_norm(x, {given.width}, weight, bias, kEpsilon)
                 : x * at::rsqrt(x.square().mean(-1, true) + kEpsilon) * weight + 0 * bias;
    output.backward(inputs.to_output.to(at::kDouble));
    to_input = x.grad() + inputs.added.to(at::kDouble);
    to_weight = weight.grad();
    to_bias = bias.grad();
  }
};

struct Statistics {
  Output mean, inverse;
  explicit Statistics(int64_t rows) : mean({rows}, at::kFloat), inverse({rows}, at::kFloat) {}
};

ops::NormRows norm_rows(const NormCase& given, const NormInputs& inputs,
                        const Statistics& statistics) {
  return {.dtype = kernel_dtype(given.dtype),
          .num_rows = given.rows,
          .width = given.width,
          .input = inputs.input.data_ptr(),
          .weight = inputs.weight.data_ptr(),
          .bias = given.centred ? inputs.bias.data_ptr() : nullptr,
          .centred = given.centred,
          .mean = statistics.mean.data<float>(),
          .inverse = statistics.inverse.data<float>()};
}

float largest_of(const at::Tensor& parts) { return parts.max().item<float>(); }

// RMS norm rounds between its two products, which in bf16 costs one more rounding.
double tolerance(const NormCase& given) { return 2 * tolerance_of(given.dtype); }

TEST(EmulatedNorm, EqualsTheWideExpression) {
  for (const auto& given : norm_cases()) {
    SCOPED_TRACE(::testing::Message() << given);
    const NormInputs inputs(given);
    const ExpectedNorm expected(given, inputs);
    const auto found = run_in_orders([&] {
      const Statistics statistics(given.rows);
      const Output output({given.rows, given.width}, given.dtype, given.shift);
      const Output again({given.rows, given.width}, given.dtype, given.shift);
      const Output largest({ops::kLargestParts}, at::kFloat);
      const auto rows = norm_rows(given, inputs, statistics);
      ops::normalise_rows(output.data(), rows, kEpsilon, largest.data<float>(), kNoStream);
      ops::normalise_rows_again(again.data(), rows, kNoStream);
      return Outputs{output, again, largest, statistics.inverse};
    });
    expect_near(found[0], expected.output, tolerance(given), "normalised");
    EXPECT_TRUE(at::equal(found[1], found[0])) << "from the statistics";
    EXPECT_EQ(largest_of(found[2]), found[0].abs().max().item<float>());
  }
}

TEST(EmulatedNorm, HasTheWideExpressionsGradients) {
  for (const auto& given : norm_cases()) {
    SCOPED_TRACE(::testing::Message() << given);
    const NormInputs inputs(given);
    const ExpectedNorm expected(given, inputs);
    const auto found = run_in_orders([&] {
      const Statistics statistics(given.rows);
      const Output forward({given.rows, given.width}, given.dtype, given.shift);
      const auto rows = norm_rows(given, inputs, statistics);
      ops::normalise_rows(forward.data(), rows, kEpsilon, nullptr, kNoStream);
      const int64_t num_partials = ops::num_norm_partials(rows.dtype, rows.num_rows, rows.width);
      const Output weights({num_partials, given.width}, at::kFloat);
      const Output biases({num_partials, given.width}, at::kFloat);
      const Output to_input({given.rows, given.width}, given.dtype, given.shift);
      const Output largest({ops::kLargestParts}, at::kFloat);
      const ops::NormGradientRows gradients{
          .input_gradient = to_input.data(),
          .output_gradient = inputs.to_output.data_ptr(),
          .added = inputs.added.data_ptr(),
          .weight_partials = weights.data<float>(),
          .bias_partials = given.centred ? biases.data<float>() : nullptr,
          .largest = largest.data<float>()};
      ops::norm_gradient_rows(gradients, rows, kNoStream);
      return Outputs{to_input, largest, weights, biases};
    });
    expect_near(found[0], expected.to_input, tolerance(given), "of the input");
    EXPECT_EQ(largest_of(found[1]), found[0].abs().max().item<float>());
    const auto summed = [](const at::Tensor& partials) {
      return partials.sum(0, false, at::kDouble);
    };
    expect_near(summed(found[2]), expected.to_weight, tolerance(given), "of the weight");
    if (given.centred) expect_near(summed(found[3]), expected.to_bias, 1e-5, "of the bias");
  }
}

TEST(EmulatedNorm, MayOverwriteTheGradientItReads) {
  for (const auto& given : norm_cases()) {
    if (given.dtype != at::kBFloat16) continue;  // where bytes lie is the same
    SCOPED_TRACE(::testing::Message() << given);
    const NormInputs inputs(given);
    const auto found = run_in_orders([&] {
      const Statistics statistics(given.rows);
      const Output forward({given.rows, given.width}, given.dtype, given.shift);
      const auto rows = norm_rows(given, inputs, statistics);
      ops::normalise_rows(forward.data(), rows, kEpsilon, nullptr, kNoStream);
      const Output apart({given.rows, given.width}, given.dtype, given.shift);
      const Output in_place(inputs.to_output, given.shift);
      ops::NormGradientRows gradients{.input_gradient = apart.data(),
                                      .output_gradient = inputs.to_output.data_ptr(),
                                      .added = nullptr,
                                      .weight_partials = nullptr,
                                      .bias_partials = nullptr,
                                      .largest = nullptr};
      ops::norm_gradient_rows(gradients, rows, kNoStream);
      gradients.input_gradient = in_place.data();
      gradients.output_gradient = in_place.data();
      ops::norm_gradient_rows(gradients, rows, kNoStream);
      return Outputs{apart, in_place};
    });
    EXPECT_TRUE(at::equal(found[0], found[1]));
  }
}

TEST(EmulatedNorm, HandsNaNOn) {
  const NormCase given{at::kBFloat16, true, 3, 64};
  NormInputs inputs(given);
  inputs.input[1][5] = std::numeric_limits<float>::quiet_NaN();
  const Statistics statistics(given.rows);
  const Output output({3, 64}, given.dtype), largest({ops::kLargestParts}, at::kFloat);
  ops::normalise_rows(output.data(), norm_rows(given, inputs, statistics), kEpsilon,
                      largest.data<float>(), kNoStream);
  EXPECT_TRUE(output.values()[1].isnan().all().item<bool>());
  EXPECT_FALSE(output.values()[0].isnan().any().item<bool>());
  EXPECT_TRUE(largest.values().isnan().any().item<bool>());
}

}  // namespace
}  // namespace fullshard::emulation
