// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/peak_matmul_flops.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

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
TEST(PeakMatmulFlops, IsMeasuredQuicklyInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const double before = processor_seconds();
    EXPECT_GT(train::measure_peak_matmul_flops(dtype, at::kCPU), 0) << dtype;
    EXPECT_LT(processor_seconds() - before, 3) << dtype;
  }
}

}  // namespace
}  // namespace fullshard::testing
