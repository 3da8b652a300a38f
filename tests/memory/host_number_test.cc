// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_number.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

namespace fullshard::memory {
namespace {

TEST(HostNumber, OfTheCpuIsThere) {
  const HostNumber number(at::full({1}, 0.1f, at::kFloat).requires_grad_());
  EXPECT_EQ(number.arrival(), nullptr);
  EXPECT_EQ(number.wait(), 0.1f);
}

}  // namespace
}  // namespace fullshard::memory
