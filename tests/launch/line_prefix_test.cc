// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/line_prefix.h"

#include <gtest/gtest.h>

namespace fullshard::launch {
namespace {

TEST(LinePrefix, MarksEachCompleteLine) {
  LinePrefix lines("[1] ");
  EXPECT_EQ(lines.take("a\nb\nc"), "[1] a\n[1] b\n");
  EXPECT_EQ(lines.take("d\n\n"), "[1] cd\n[1] \n");
  EXPECT_EQ(lines.rest(), "");
}

TEST(LinePrefix, EndsAnUnfinishedLine) {
  LinePrefix lines("[2] ");
  EXPECT_EQ(lines.take("half"), "");
  EXPECT_EQ(lines.rest(), "[2] half\n");
  EXPECT_EQ(lines.rest(), "");
}

}  // namespace
}  // namespace fullshard::launch
