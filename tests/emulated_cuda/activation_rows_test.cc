// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/activation_rows.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/ops/cuda/dropout_rows.h"
#include "fullshard/ops/cuda/largest_parts.h"
#include "tests/emulated_cuda/kernel_run.h"

namespace fullshard::emulation {
namespace {

using ops::RowActivation;

constexpr RowActivation kKinds[] = {RowActivation::gelu, RowActivation::gelu_tanh,
                                    RowActivation::relu, RowActivation::silu};

at::Tensor activated(const at::Tensor& x, RowActivation kind) {
  switch (kind) {
    case RowActivation::gelu:
      return at::gelu(x);
    case RowActivation::gelu_tanh:
      return at::gelu(x, "tanh");
    case RowActivation::relu:
      return at::relu(x);
    case RowActivation::silu:
      return at::silu(x);
  }
  return {};
}

constexpr ops::ElementDropout kDropout{.threshold = 13'107,  // of 65,536: 0.2
                                       .scale = 1.25f,
                                       .draw = {.seed = 5, .offset = 8}};

// What dropout multiplies each of `count` elements with.
at::Tensor dropout_factors(int64_t count, const ops::ElementDropout& dropout) {
  const auto ones = at::ones({count});
  auto factors = at::empty({count});
  ops::drop_rows({.dtype = ops::KernelDtype::fp32,
                  .output = factors.data_ptr(),
                  .values = ones.data_ptr(),
                  .residual = nullptr,
                  .count = count,
                  .dropout = dropout},
                 kNoStream);
  return factors;
}

// `given` is [rows, width], or [rows, 2 * width] with gate and up beside each other.
void expect_activation(at::ScalarType dtype, RowActivation kind, int64_t width, bool is_gated,
                       bool drops) {
  const int64_t rows = 9, across = is_gated ? 2 * width : width;
  const auto input = (at::randn({rows, across}) * 3).to(dtype);
  const auto to_output = at::randn({rows, width}).to(dtype);
  const auto factors =
      drops ? dropout_factors(rows * width, kDropout).view({rows, width}) : at::ones({rows, width});
  auto exact = input.to(at::kDouble).requires_grad_();
  const auto parts = exact.chunk(is_gated ? 2 : 1, -1);
  auto expected = activated(parts[0], kind);
  if (is_gated) expected = expected * parts[1];
  expected = expected * factors;
  expected.backward(to_output.to(at::kDouble));
  const auto second_half = [&](const at::Tensor& tensor) {
    return is_gated ? static_cast<char*>(tensor.data_ptr()) + width * tensor.element_size()
                    : nullptr;
  };
  ops::ActivationRows activation{.dtype = kernel_dtype(dtype),
                                 .kind = kind,
                                 .num_rows = rows,
                                 .width = width,
                                 .input = input.data_ptr(),
                                 .up = second_half(input),
                                 .stride = across};
  if (drops) activation.dropout = kDropout;
  const auto found = run_in_orders([&] {
    const Output forward({rows, width}, dtype), largest({ops::kLargestParts}, at::kFloat);
    ops::activate_rows(forward.data(), activation, largest.data<float>(), kNoStream);
    const Output to_input({rows, across}, dtype), in_place(to_output);
    const Output largest_gradient({ops::kLargestParts}, at::kFloat);
    ops::activate_gradient_rows({.output_gradient = in_place.data(),
                                 .input_gradient = to_input.data(),
                                 .up_gradient = second_half(to_input.values()),
                                 .gradient_stride = across,
                                 .output = in_place.data(),
                                 .largest = largest_gradient.data<float>()},
                                activation, kNoStream);
    return Outputs{forward, to_input, in_place, largest, largest_gradient};
  });
  expect_near(found[0], expected, tolerance_of(dtype), "forward");
  expect_near(found[1], exact.grad(), tolerance_of(dtype), "gradient");
  EXPECT_TRUE(at::equal(found[2], found[0])) << "the results once more";
  EXPECT_EQ(found[3].max().item<float>(), found[0].abs().max().item<float>());
  EXPECT_EQ(found[4].max().item<float>(), found[1].abs().max().item<float>());
}

TEST(EmulatedActivation, EqualsTheWideExpressionWithItsGradient) {
  for (const auto dtype : kKernelDtypes) {
    for (const auto kind : kKinds) {
      for (const int64_t width : {1, 13, 64, 2056}) {
        for (const bool is_gated : {false, true}) {
          for (const bool drops : {false, true}) {
            SCOPED_TRACE(::testing::Message()
                         << static_cast<int>(kind) << ", width " << width << " " << dtype
                         << (is_gated ? ", gated" : "") << (drops ? ", dropping" : ""));
            expect_activation(dtype, kind, width, is_gated, drops);
          }
        }
      }
    }
  }
}

// In 16 bits GELU takes a polynomial. Far below zero, where 1 + erf would be the difference of two
// numbers, it is within 4 % of values that no sum notices.
TEST(EmulatedActivation, ExactGeluIsWithinARoundingOfBf16) {
  const auto input = at::arange(-12.0, 12.0, 1.0 / 64).to(at::kBFloat16);
  const Output output(input.sizes(), at::kBFloat16);
  ops::activate_rows(output.data(),
                     {.dtype = ops::KernelDtype::bf16,
                      .kind = RowActivation::gelu,
                      .num_rows = 1,
                      .width = input.numel(),
                      .input = input.data_ptr(),
                      .up = nullptr,
                      .stride = input.numel()},
                     nullptr, kNoStream);
  const auto x = input.to(at::kDouble);
  const auto exact = x * 0.5 * at::erfc(-x * std::sqrt(0.5));
  const auto error = (output.values().to(at::kDouble) - exact).abs();
  const auto allowed = exact.abs() * at::where(x < -4, 0.04, 1.0 / 256 + 5e-4);
  EXPECT_TRUE((error <= allowed).all().item<bool>())
      << "at " << x[(error - allowed).argmax()].item<double>();
}

TEST(EmulatedDropout, DropsTheSameElementsInEveryDtypeAndForm) {
  const int64_t count = 4096;
  const auto factors = dropout_factors(count, kDropout);
  const auto dropped = factors.eq(0);
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), 0.2, 0.03);
  EXPECT_TRUE((dropped | factors.eq(1.25)).all().item<bool>());
  for (const auto dtype : kKernelDtypes) {
    for (const int shift : {0, 1}) {  // odd addresses take single elements
      const auto values = shifted_by(at::randn({count}).to(dtype), shift);
      const auto residual = shifted_by(at::randn({count}).to(dtype), shift);
      const auto found = run_in_orders([&] {
        const Output output({count}, dtype, shift), drawn({2}, at::kLong);
        auto dropout = kDropout;
        dropout.drawn = drawn.data<int64_t>();
        ops::drop_rows({.dtype = kernel_dtype(dtype),
                        .output = output.data(),
                        .values = values.data_ptr(),
                        .residual = residual.data_ptr(),
                        .count = count,
                        .dropout = dropout},
                       kNoStream);
        return Outputs{output, drawn};
      });
      expect_near(found[0], values.to(at::kDouble) * factors + residual, tolerance_of(dtype),
                  "dropped and added");
      EXPECT_EQ(found[1][0].item<int64_t>(), 5);
      EXPECT_EQ(found[1][1].item<int64_t>(), 8);
    }
  }
}

TEST(EmulatedDropout, TakesItsNumbersFromTheDeviceInGraphs) {
  const auto numbers = at::tensor({5, 4}, at::kLong);
  auto dropout = kDropout;
  dropout.draw = {.seed_at = numbers.data_ptr<int64_t>(),
                  .offset_at = numbers.data_ptr<int64_t>() + 1,
                  .further = 4};
  EXPECT_TRUE(at::equal(dropout_factors(999, dropout), dropout_factors(999, kDropout)));
  dropout.draw.further = 8;
  EXPECT_FALSE(at::equal(dropout_factors(999, dropout), dropout_factors(999, kDropout)));
}

}  // namespace
}  // namespace fullshard::emulation
