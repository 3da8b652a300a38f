// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/memory_info.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace fullshard::base {
namespace {

TEST(MemoryInfo, IsWhatTheSystemCountsInPages) {
  const auto info = memory_info();
  const int64_t pages = ::sysconf(_SC_PHYS_PAGES), bytes = ::sysconf(_SC_PAGESIZE);
  EXPECT_EQ(info.total_bytes, pages * bytes);
  EXPECT_GT(info.available_bytes, 0);
  EXPECT_LE(info.available_bytes, info.total_bytes);
}

}  // namespace
}  // namespace fullshard::base
