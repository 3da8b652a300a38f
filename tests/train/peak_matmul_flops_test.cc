// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/peak_matmul_flops.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

namespace fullshard::testing {
namespace {

double processor_seconds() {
  rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec);
}

// A run measures it before its first step; the largest product in fp16 would take some processors
// half a minute.
// As a GPU that was idle does it: fast after a tenth of a second of work.
TEST(PeakMatmulFlops, IsOfAClockThatHasRisen) {
  const auto rising = [spent = 0.0]() mutable {
    const double taken = spent < 0.1 ? 0.005 : 0.001;
    spent += taken;
    return taken;
  };
  EXPECT_EQ(train::best_of_repetitions(rising, 0), 0.005);
  EXPECT_EQ(train::best_of_repetitions(rising, 0.2), 0.001);
}

TEST(PeakMatmulFlops, IsMeasuredQuicklyInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double before = processor_seconds();
    EXPECT_GT(train::measure_peak_matmul_flops(dtype, at::kCPU), 0) << dtype;
    EXPECT_LT(processor_seconds() - before, 3) << dtype;
  }
}

double flops_of_a_layer(at::ScalarType dtype) {
  constexpr int64_t kEdge = 384;
  const auto input = at::randn({kEdge, kEdge}).to(dtype);
  const auto weight = at::randn({kEdge, kEdge}).to(dtype);
  double reached = 0;
  for (int i = 0; i < 4; ++i) {
    const auto start = std::chrono::steady_clock::now();
    at::linear(input, weight);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    reached = std::max(reached, 2.0 * kEdge * kEdge * kEdge / taken.count());
  }
  return reached;
}

// What a layer computes in forward must not exceed it: MFU would be more than all. Other processes
// run beside this one and take its cores now and then, so half of it counts, and one time of five:
// the roof of a slow layout was a sixth every time.
TEST(PeakMatmulFlops, IsNoLessThanALayerReaches) {
  for (const auto dtype : {at::kFloat, at::kHalf}) {
    double most = 0;
    for (int i = 0; i < 5 && most <= 0.5; ++i) {
      const double reached = flops_of_a_layer(dtype);
      most = std::max(most, train::measure_peak_matmul_flops(dtype, at::kCPU) / reached);
    }
    EXPECT_GT(most, 0.5) << dtype;
  }
}

}  // namespace
}  // namespace fullshard::testing
