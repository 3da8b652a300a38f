// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/closest.h"

#include <gtest/gtest.h>

#include <vector>

namespace fullshard::base {
namespace {

const std::vector<std::string> kCommands = {"launch", "train", "eval"};

TEST(Closest, FindsAWordAFewLettersAway) {
  EXPECT_EQ(closest("lauch", kCommands), "launch");
  EXPECT_EQ(closest("trian", kCommands), "train");
}

TEST(Closest, FindsNothingWhereNothingIsNear) {
  EXPECT_EQ(closest("quantise", kCommands), std::nullopt);
  EXPECT_EQ(closest("launch", {}), std::nullopt);
}

}  // namespace
}  // namespace fullshard::base
