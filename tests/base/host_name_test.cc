// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/host_name.h"

#include <gtest/gtest.h>

#include <fstream>

namespace fullshard::base {
namespace {

TEST(HostName, IsTheKernels) {
  std::string expected;
  std::ifstream("/proc/sys/kernel/hostname") >> expected;
  EXPECT_EQ(host_name(), expected);
  EXPECT_FALSE(host_name().empty());
}

}  // namespace
}  // namespace fullshard::base
