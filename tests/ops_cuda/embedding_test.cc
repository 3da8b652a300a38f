// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/embedding.h"

#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>

#include "fullshard/nn/gradient_hook.h"
#include "tests/ops_cuda/on_device.h"

namespace fullshard::ops {
namespace {

class DeviceEmbedding : public OnDevice {};

at::Tensor sink_after(const at::Tensor& weight, const at::Tensor& indices,
                      const at::Tensor& factors, int64_t padding, bool accumulate) {
  const auto slot = at::full(weight.sizes(), accumulate ? 2.0 : 7.0,
                             weight.options().dtype(at::kFloat).requires_grad(false));
  nn::set_gradient_sink(weight, [&] { return nn::GradientSink{slot, accumulate}; });
  weighted(fullshard::embedding(indices, weight, padding), factors).backward();
  nn::set_gradient_sink(weight, {});
  return slot;
}

void expect_rows(int64_t table_rows, int64_t width, const at::Tensor& indices, int64_t padding,
                 at::ScalarType dtype) {
  const auto weight = device_randn({table_rows, width}, dtype).requires_grad_();
  auto sizes = indices.sizes().vec();
  sizes.push_back(width);
  const auto factors = device_randn(sizes, dtype);
  auto expected = at::zeros({table_rows, width}, weight.options().dtype(at::kDouble));
  expected.index_add_(0, indices.flatten(), factors.to(at::kDouble).flatten(0, -2));
  if (padding >= 0) expected[padding].zero_();
  const auto written = sink_after(weight, indices, factors, padding, false);
  expect_close(written, expected, 1e-5, "written");
  expect_close(sink_after(weight, indices, factors, padding, true), expected + 2, 1e-5, "added");
  EXPECT_TRUE(at::equal(sink_after(weight, indices, factors, padding, false), written))
      << "other bits on a second run";
}

TEST_F(DeviceEmbedding, AddsRowsIntoTheSinkInAFixedOrder) {
  const auto integers = at::TensorOptions(at::kLong).device(at::kCUDA);
  for (const auto dtype : kDeviceDtypes) {
    for (const int64_t width : {1, 20, 64, 768, 2048}) {
      SCOPED_TRACE(::testing::Message() << "width " << width << " " << dtype);
      // Rare indices, frequent ones whose segments cross many chunks, and one alone.
      expect_rows(1000, width, at::randint(1000, {4, 111}, integers), -1, dtype);
      expect_rows(3, width, at::randint(3, {2, 500}, integers), -1, dtype);
      expect_rows(3, width, at::randint(3, {2, 500}, integers), 1, dtype);
      expect_rows(5, width, at::full({1, 320}, 4, integers), -1, dtype);
      expect_rows(5, width, at::full({1, 1}, 2, integers), -1, dtype);
    }
  }
}

TEST_F(DeviceEmbedding, TakesNoIndices) {
  const auto indices = at::zeros({0}, at::TensorOptions(at::kLong).device(at::kCUDA));
  const auto weight = device_randn({3, 8}).requires_grad_();
  const auto slot = sink_after(weight, indices, device_randn({0, 8}), -1, false);
  EXPECT_EQ(slot.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace fullshard::ops
