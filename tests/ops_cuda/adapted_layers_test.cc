// SPDX-License-Identifier: Apache-2.0
// Frozen layers with low-rank parts beside them, in 16 and 8 bits, against the same expressions in
// fp64.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "fullshard/memory/device_memory.h"
#include "fullshard/ops/products/activated_projection.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/ops/products/low_rank.h"
#include "fullshard/ops/products/norm_projection.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceAdaptedLayers : public OnDevice {};

constexpr double kAdapterScale = 0.5;

LinearTerms adapted_terms(const at::Tensor& weight, const at::Tensor& a, const at::Tensor& b) {
  return {.weight = weight.detach(),
          .bias = {},
          .low_rank = {.a = a, .b = b, .scale = kAdapterScale, .dropout = 0},
          .row_scales = {}};
}

at::Tensor side_by_side(const Projected& projected) {
  return projected.packed.defined() ? projected.packed : at::cat(projected.parts, -1);
}

LinearTerms in_8_bits(const Int8Rows& rows, const at::Tensor& a, const at::Tensor& b) {
  return {.weight = rows.values,
          .bias = {},
          .low_rank = {.a = a, .b = b, .scale = 2, .dropout = 0},
          .row_scales = rows.scales};
}

// The middle one of three layers has no adapter, and their scales differ.
Operator adapted_after_norm(bool trains_norm) {
  return [trains_norm](const Inputs& in) {
    const NormTerms norm{trains_norm ? in[1] : in[1].detach(), {}, 1e-5, false};
    auto last = adapted_terms(in[4], in[7], in[8]);
    last.low_rank.scale = 3;
    const auto made =
        norm_projection(in[0], norm,
                        {adapted_terms(in[2], in[5], in[6]),
                         {.weight = in[3].detach(), .bias = {}, .low_rank = {}, .row_scales = {}},
                         last});
    EXPECT_TRUE(made.projected.packed.defined() || in[0].scalar_type() == at::kDouble);
    auto result = at::cat({side_by_side(made.projected), made.residual * 2}, -1);
    for (size_t i = 1; i < 5; ++i) result = result + in[i].sum() * 0.01;
    return result;
  };
}

TEST_F(DeviceAdaptedLayers, OfANormEqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {64, 768}) {
      const Inputs inputs{
          device_randn({3, 50, width}), device_randn({width}),     device_randn({32, width}),
          device_randn({16, width}),    device_randn({24, width}), device_randn({8, width}),
          device_randn({32, 8}),        device_randn({4, width}),  device_randn({24, 4})};
      for (const bool trains_norm : {false, true}) {
        expect_same_as_wide(adapted_after_norm(trains_norm), inputs, dtype,
                            dtype == at::kFloat ? 5e-5 : 3e-2);
      }
    }
  }
}

TEST_F(DeviceAdaptedLayers, OfAnActivationEqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t inner : {64, 128}) {  // plain, and gated
      const Operator own = [](const Inputs& in) {
        return activated_projection({.packed = in[0]}, Activation::silu,
                                    adapted_terms(in[1], in[2], in[3]), in[4]) +
               in[1].sum() * 0.01;
      };
      const Inputs inputs{device_randn({2, 60, inner}), device_randn({48, 64}),
                          device_randn({8, 64}), device_randn({48, 8}), device_randn({2, 60, 48})};
      expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 5e-5 : 3e-2);
    }
  }
}

TEST_F(DeviceAdaptedLayers, OfRowsEqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const bool has_residual : {false, true}) {
      const Operator own = [has_residual](const Inputs& in) {
        auto terms = adapted_terms(in[1], in[2], in[3]);
        terms.bias = in[5].detach();
        const auto made = linear(in[0], terms, has_residual ? in[4] : at::Tensor());
        return made + (in[1].sum() + in[4].sum() + in[5].sum()) * 0.01;
      };
      const Inputs inputs{device_randn({2, 60, 64}), device_randn({48, 64}),
                          device_randn({8, 64}),     device_randn({48, 8}),
                          device_randn({2, 60, 48}), device_randn({48})};
      expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 5e-5 : 3e-2);
    }
  }
}

TEST_F(DeviceAdaptedLayers, In8BitsEqualTheWideExpression) {
  const auto first = int8_rows(device_randn({32, 128})),
             second = int8_rows(device_randn({96, 128}));
  const auto outer = int8_rows(device_randn({128, 64}));
  for (const auto dtype : kDeviceDtypes) {
    const Operator own = [&](const Inputs& in) {
      const NormTerms norm{in[1].detach(), {}, 1e-5, false};
      const auto rows = norm_projection(
          in[0], norm, {in_8_bits(first, in[2], in[3]), in_8_bits(second, in[4], in[5])});
      const auto packed = side_by_side(rows.projected);
      return linear(activated_projection({.packed = packed}, Activation::silu,
                                         in_8_bits(outer, in[6], in[7]), rows.residual),
                    in_8_bits(first, {}, {})) +
             in[1].sum() * 0.01;
    };
    const Inputs inputs{device_randn({3, 40, 128}), device_randn({128}),    device_randn({8, 128}),
                        device_randn({32, 8}),      device_randn({4, 128}), device_randn({96, 4}),
                        device_randn({8, 64}),      device_randn({128, 8})};
    expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 5e-5 : 4e-2);
  }
}

// Odd widths take no accesses of 16 bytes.
TEST_F(DeviceAdaptedLayers, In8BitsWidenToTheBitsOfTheCpu) {
  for (const int64_t width : {1, 15, 16, 4096, 14336, 77}) {
    const auto rows = int8_rows(at::randn({37, width}));
    for (const auto dtype : kDeviceDtypes) {
      const auto found = widened_rows(rows.values.cuda(), rows.scales.cuda(), dtype);
      EXPECT_TRUE(at::equal(found.cpu(), widened_rows(rows.values, rows.scales, dtype)))
          << width << " " << dtype;
    }
  }
}

// Of the rows that layers read nothing is kept: the input, and the adapters' narrow rows.
TEST_F(DeviceAdaptedLayers, KeepTheInputAlone) {
  const auto rows = int8_rows(device_randn({4096, 1024}));
  const auto norm_weight = bf16_randn({1024});
  const auto input = bf16_randn({2048, 1024}).requires_grad_();
  const auto a = bf16_randn({8, 1024}).requires_grad_(), b = bf16_randn({4096, 8}).requires_grad_();
  const auto before = memory::device_memory({at::kCUDA, 0}).allocated_bytes;
  const auto made = norm_projection(input, {norm_weight, {}, 1e-5, false}, {in_8_bits(rows, a, b)});
  const auto kept = memory::device_memory({at::kCUDA, 0}).allocated_bytes - before;
  const int64_t output_bytes = int64_t{2048} * 4096 * 2, narrow_bytes = 2048 * 8 * 2;
  EXPECT_LE(kept, output_bytes + narrow_bytes + 2048 * 4 + 8192);
}

}  // namespace
}  // namespace fullshard::ops
