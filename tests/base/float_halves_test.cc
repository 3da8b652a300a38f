// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/float_halves.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace fullshard::base {
namespace {

float nearest_of(float value) {
  return float_of(static_cast<uint32_t>(halves_of(value).nearest) << 16);
}

void expect_whole_again(uint32_t bits) {
  const float value = float_of(bits);
  const float again = joined(halves_of(value));
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(again)) << std::hex << bits;
    EXPECT_TRUE(std::isnan(nearest_of(value))) << std::hex << bits;
  } else {
    EXPECT_EQ(bits_of(again), bits) << std::hex << bits;
  }
}

// Every upper half with the lower ones around half a step.
TEST(FloatHalves, AreTheFloatAgain) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      expect_whole_again(upper << 16 | lower);
    }
  }
  std::mt19937 random(static_cast<unsigned>(GTEST_FLAG_GET(random_seed)));
  for (int i = 0; i < 1'000'000; ++i) expect_whole_again(static_cast<uint32_t>(random()));
}

TEST(FloatHalves, RoundToTheNearestAndTiesAwayFromZero) {
  constexpr float kStep = 1.0f / 128;  // of bf16 from 1 to 2
  EXPECT_EQ(nearest_of(1 + 0.49f * kStep), 1);
  EXPECT_EQ(nearest_of(1 + 0.5f * kStep), 1 + kStep);
  EXPECT_EQ(nearest_of(1 + 1.5f * kStep), 1 + 2 * kStep);
  EXPECT_EQ(nearest_of(-1 - 0.5f * kStep), -1 - kStep);
  EXPECT_EQ(nearest_of(-1 - 0.49f * kStep), -1);
  EXPECT_EQ(nearest_of(0), 0);
  EXPECT_TRUE(std::signbit(nearest_of(-0.0f)));
}

TEST(FloatHalves, RoundTheLargestToInfinityAndKeepIt) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(nearest_of(largest), std::numeric_limits<float>::infinity());
  EXPECT_EQ(joined(halves_of(largest)), largest);
}

}  // namespace
}  // namespace fullshard::base
