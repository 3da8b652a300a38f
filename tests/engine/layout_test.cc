// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::engine {
namespace {

using ::testing::ElementsAre;

// The example of docs/memory_layout.md.
Layout example() { return Layout({{"A", {5, 3}}, {"b", {3}}, {"C", {2, 4}}}, 2, 8); }

TEST(Layout, AlignsEveryTensorAndPadsTheTail) {
  const auto layout = example();
  EXPECT_EQ(layout.slots()[0].offset, 0);
  EXPECT_EQ(layout.slots()[1].offset, 16);
  EXPECT_EQ(layout.slots()[2].offset, 24);
  EXPECT_EQ(layout.numel(), 32);
  EXPECT_EQ(layout.shard_numel(), 16);
  EXPECT_EQ(layout.tensor_numel(), 26);
}

TEST(Layout, GivesEachRankThePartsItOwns) {
  const auto layout = example();
  const auto first = layout.pieces(0);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].slot, 0);
  EXPECT_EQ(first[0].begin, 0);
  EXPECT_EQ(first[0].end, 15);
  const auto second = layout.pieces(1);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(second[0].slot, 1);
  EXPECT_EQ(second[0].shard_offset, 0);
  EXPECT_EQ(second[1].slot, 2);
  EXPECT_EQ(second[1].shard_offset, 8);
}

TEST(Layout, CutsInsideATensor) {
  const Layout layout({{"w", {10}}}, 3, 1);
  EXPECT_EQ(layout.numel(), 12);
  EXPECT_EQ(layout.pieces(1)[0].begin, 4);
  EXPECT_EQ(layout.pieces(1)[0].end, 8);
  EXPECT_EQ(layout.pieces(2)[0].numel(), 2);
}

TEST(Layout, LeavesRanksEmptyWhenThereIsTooLittle) {
  const Layout layout({{"w", {1}}}, 1024, 4);
  EXPECT_EQ(layout.numel(), 4096);
  EXPECT_EQ(layout.pieces(0).size(), 1u);
  EXPECT_TRUE(layout.pieces(1).empty());
  EXPECT_TRUE(layout.pieces(1023).empty());
}

TEST(Layout, NamesThePadding) {
  const auto gaps = example().padding();
  ASSERT_EQ(gaps.size(), 2u);
  EXPECT_EQ(gaps[0].begin, 15);
  EXPECT_EQ(gaps[0].end, 16);
  EXPECT_EQ(gaps[1].begin, 19);
  EXPECT_EQ(gaps[1].end, 24);
}

TEST(Layout, CountsAScalarAsOneElementAndAnEmptyTensorAsNone) {
  const Layout layout({{"scale", {}}, {"none", {0, 3}}, {"b", {2}}}, 1, 1);
  EXPECT_EQ(layout.slots()[1].offset, 1);
  EXPECT_EQ(layout.slots()[2].offset, 1);
  EXPECT_EQ(layout.numel(), 3);
  EXPECT_EQ(layout.pieces(0).size(), 2u);
}

TEST(Layout, RefusesAWorldOfNoShards) { EXPECT_THROW(Layout({}, 0, 1), Error); }

TEST(RoundRobin, SpreadsNeighboursOverTheShards) {
  EXPECT_THAT(round_robin_order(7, 3), ElementsAre(0, 3, 6, 1, 4, 2, 5));
  EXPECT_THAT(round_robin_order(2, 4), ElementsAre(0, 1));
}

}  // namespace
}  // namespace fullshard::engine
