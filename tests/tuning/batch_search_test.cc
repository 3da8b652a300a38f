// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/batch_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::tuning {
namespace {

using ::testing::ElementsAre;

TEST(BatchSearch, FindsTheExactLargest) {
  for (int64_t largest = 0; largest < 70; ++largest) {
    EXPECT_EQ(largest_fitting(100, [&](int64_t index) { return index <= largest; }), largest);
  }
}

TEST(BatchSearch, DoublesAndThenHalvesTheGap) {
  std::vector<int64_t> asked;
  const auto fits = [&](int64_t index) { return asked.push_back(index + 1), index + 1 <= 11; };
  EXPECT_EQ(largest_fitting(1000, fits), 10);
  EXPECT_THAT(asked, ElementsAre(2, 4, 8, 16, 12, 10, 11));
}

TEST(BatchSearch, EndsAtTheLastSize) {
  int num_asked = 0;
  EXPECT_EQ(largest_fitting(1, [&](int64_t) { return ++num_asked > 0; }), 0);
  EXPECT_EQ(num_asked, 0);
  EXPECT_EQ(largest_fitting(6, [](int64_t) { return true; }), 5);
}

TEST(BatchSearch, TakesOnlyDivisorsOfAFixedBatch) {
  EXPECT_THAT(possible_batches(4, 0), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(possible_batches(64, 12), ElementsAre(1, 2, 3, 4, 6, 12));
  EXPECT_THAT(possible_batches(5, 12), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace fullshard::tuning
