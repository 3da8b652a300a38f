// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/resident_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fullshard::tiers {
namespace {

using ::testing::ElementsAre;

// A root of 10 bytes around eight blocks of 100.
std::vector<UnitBytes> eight_blocks() {
  std::vector<UnitBytes> units = {{.path = "", .bytes = 10, .is_root = true}};
  for (int block = 0; block < 8; ++block) units.push_back({std::to_string(block), 100});
  return units;
}

TEST(ResidentUnits, AreAllWhereTheyFit) {
  const auto found = resident_units(eight_blocks(), {.device_bytes = 810});
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_whole());
  EXPECT_EQ(found->resident_bytes, 810);
  EXPECT_EQ(found->buffer_bytes, 0);
}

// One byte less, and four blocks are fetched: three buffers take what three blocks took.
TEST(ResidentUnits, LieBetweenThoseThatAreFetched) {
  const auto found = resident_units(eight_blocks(), {.device_bytes = 809});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->resident, ElementsAre("", "0", "2", "4", "6"));
  EXPECT_EQ(found->resident_bytes, 410);
  EXPECT_EQ(found->fetched_bytes, 400);
  EXPECT_EQ(found->buffer_bytes, 300);
}

TEST(ResidentUnits, AreAsFewAsAShareSays) {
  const auto none = resident_units(eight_blocks(), {.device_bytes = 10000, .most_share = 0});
  ASSERT_TRUE(none);
  EXPECT_THAT(none->resident, ElementsAre(""));
  const auto half = resident_units(eight_blocks(), {.device_bytes = 10000, .most_share = 0.51});
  ASSERT_TRUE(half);
  EXPECT_EQ(half->resident_bytes, 410);
}

TEST(ResidentUnits, AreNoneWhereNothingFits) {
  EXPECT_TRUE(resident_units(eight_blocks(), {.device_bytes = 310}));
  EXPECT_FALSE(resident_units(eight_blocks(), {.device_bytes = 309}));
}

}  // namespace
}  // namespace fullshard::tiers
