// SPDX-License-Identifier: Apache-2.0
// Frozen layers with low-rank parts beside them, against the same expressions in fp64.
#include <ATen/ops/cat.h>
#include <gtest/gtest.h>

#include "fullshard/ops/products/activated_projection.h"
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

// The middle one of three layers has no adapter.
TEST_F(DeviceAdaptedLayers, OfANormEqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {64, 768}) {
      const Operator own = [](const Inputs& in) {
        const NormTerms norm{in[1], {}, 1e-5, false};
        const auto made = norm_projection(
            in[0], norm,
            {adapted_terms(in[2], in[5], in[6]),
             {.weight = in[3].detach(), .bias = {}, .low_rank = {}, .row_scales = {}},
             adapted_terms(in[4], in[7], in[8])});
        auto result = at::cat({side_by_side(made.projected), made.residual * 2}, -1);
        for (size_t i = 2; i < 5; ++i) result = result + in[i].sum() * 0.01;
        return result;
      };
      const Inputs inputs{
          device_randn({3, 50, width}), device_randn({width}),     device_randn({32, width}),
          device_randn({16, width}),    device_randn({24, width}), device_randn({8, width}),
          device_randn({32, 8}),        device_randn({4, width}),  device_randn({24, 4})};
      expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 5e-5 : 3e-2);
    }
  }
}

TEST_F(DeviceAdaptedLayers, OfAnActivationEqualTheWideExpression) {
  for (const auto dtype : kDeviceDtypes) {
    const Operator own = [](const Inputs& in) {
      return activated_projection({.packed = in[0]}, Activation::silu,
                                  adapted_terms(in[1], in[2], in[3]), in[4]) +
             in[1].sum() * 0.01;
    };
    const Inputs inputs{device_randn({2, 60, 128}), device_randn({48, 64}), device_randn({8, 64}),
                        device_randn({48, 8}), device_randn({2, 60, 48})};
    expect_same_as_wide(own, inputs, dtype, dtype == at::kFloat ? 5e-5 : 3e-2);
  }
}

}  // namespace
}  // namespace fullshard::ops
