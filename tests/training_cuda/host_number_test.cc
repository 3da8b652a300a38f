// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_number.h"

#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include "tests/gpu.h"

namespace fullshard::testing {
namespace {

TEST(CudaHostNumber, DoesNotWaitForWorkThatWasGivenLater) {
  const auto number = at::full({}, 2.5, at::TensorOptions().device(kGpu).dtype(at::kDouble));
  auto factor = at::ones({8192, 8192}, at::TensorOptions().device(kGpu).dtype(at::kDouble));
  (void)at::matmul(factor, factor);  // what is made for the first product is made
  const memory::HostNumber on_its_way(number);
  for (int i = 0; i < 10; ++i) factor = at::matmul(factor, factor);  // tens of milliseconds each
  EXPECT_EQ(on_its_way.wait(), 2.5);
  EXPECT_TRUE(on_its_way.arrival()->has_passed());
  const c10::impl::VirtualGuardImpl guard(kGpu.type());
  EXPECT_FALSE(guard.queryStream(guard.getStream(kGpu)));
}

}  // namespace
}  // namespace fullshard::testing
