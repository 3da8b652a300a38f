#include "fullshard/shard/gather_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<int> reach(GatherOrder& order, int unit) {
  std::vector<int> gathered;
  order.reach(unit, [&](int due) { gathered.push_back(due); });
  return gathered;
}

TEST(GatherOrder, GivesEachUnitItsTurnOnce) {
  GatherOrder order;
  order.open({0, 3, 2, 1}, 4);
  EXPECT_THAT(reach(order, 0), ElementsAre(0));
  EXPECT_THAT(reach(order, 3), ElementsAre(3));
  EXPECT_THAT(reach(order, 3), IsEmpty());
  EXPECT_THAT(reach(order, 1), ElementsAre(2, 1));
  EXPECT_TRUE(order.is_exhausted());
}

TEST(GatherOrder, FetchingAheadTakesATurn) {
  GatherOrder order;
  order.open({2, 1, 0}, 3);
  EXPECT_EQ(order.take_next(), 2);
  EXPECT_EQ(order.next(), 1);
  EXPECT_THAT(reach(order, 2), IsEmpty());
}

TEST(GatherOrder, LeavesUnitsThatAreNotOfThisBackwardAlone) {
  GatherOrder order;
  order.open({2}, 3);
  EXPECT_THAT(reach(order, 1), IsEmpty());
  EXPECT_FALSE(order.is_exhausted());
}

}  // namespace
}  // namespace fullshard
