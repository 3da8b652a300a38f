// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/sharding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "tests/errors.h"

namespace fullshard::engine {
namespace {

using fullshard::testing::message_of;
using ::testing::HasSubstr;

TEST(Strategy, IsKnownByNameInAnySpellingAndByNumber) {
  EXPECT_EQ(parse_strategy("FULL_SHARD"), Strategy::full_shard);
  EXPECT_EQ(parse_strategy("full-shard"), Strategy::full_shard);
  EXPECT_EQ(parse_strategy("Shard Grad_Op"), Strategy::shard_grad_op);
  EXPECT_EQ(parse_strategy("3"), Strategy::no_shard);
  EXPECT_EQ(parse_strategy("hybrid_shard"), Strategy::hybrid_shard);
  EXPECT_EQ(parse_strategy("5"), Strategy::hybrid_shard_zero2);
}

TEST(Strategy, AnUnknownNameListsThoseThatExist) {
  const auto message = message_of([] { parse_strategy("full"); });
  EXPECT_EQ(message,
            "sharding strategy 'full': unknown; one of FULL_SHARD (1), SHARD_GRAD_OP (2), "
            "NO_SHARD (3), HYBRID_SHARD (4), HYBRID_SHARD_ZERO2 (5)");
}

TEST(Decision, StagesArePlacements) {
  constexpr auto r = Placement::replicated;
  constexpr auto s = Placement::sharded;
  const Sharding expected[] = {{r, r, r}, {r, r, s}, {r, s, s}, {s, s, s}};
  for (int stage = 0; stage <= 3; ++stage) {
    ShardingOptions options;
    options.zero_stage = stage;
    const auto decision = decide_sharding(options, 8, 4);
    EXPECT_EQ(decision.sharding, expected[stage]);
    EXPECT_EQ(decision.num_shards, stage == 0 ? 1 : 8);
  }
}

TEST(Decision, HybridShardsInsideAHostUnlessAFactorIsGiven) {
  ShardingOptions options{.strategy = Strategy::hybrid_shard};
  EXPECT_EQ(decide_sharding(options, 8, 4).num_shards, 4);
  options.sharding_factor = 2;
  EXPECT_EQ(decide_sharding(options, 8, 4).num_shards, 2);
}

// Every rank of such a world must say so, not only those of the hosts that do not fit.
TEST(Decision, HybridAsksForAFactorWhereHostsHoldDifferentNumbersOfRanks) {
  ShardingOptions options{.strategy = Strategy::hybrid_shard};
  EXPECT_EQ(message_of([&] { decide_sharding(options, 6, 0); }),
            "HYBRID_SHARD: the hosts of the world of 6 hold different numbers of ranks; give a "
            "sharding factor out of 1, 2, 3, 6");
  options.sharding_factor = 3;
  EXPECT_EQ(decide_sharding(options, 6, 0).num_shards, 3);
}

TEST(Decision, KeepsParametersForBackwardWhereTheStrategySaysSo) {
  EXPECT_TRUE(decide_sharding({.strategy = Strategy::full_shard}, 4, 4).reshard_after_forward);
  EXPECT_FALSE(decide_sharding({.strategy = Strategy::shard_grad_op}, 4, 4).reshard_after_forward);
  EXPECT_FALSE(
      decide_sharding({.strategy = Strategy::hybrid_shard_zero2}, 4, 4).reshard_after_forward);
  EXPECT_FALSE(
      decide_sharding({.strategy = Strategy::full_shard, .reshard_after_forward = false}, 4, 4)
          .reshard_after_forward);
}

TEST(Decision, AFactorThatDoesNotDivideListsTheDivisors) {
  ShardingOptions options;
  options.sharding_factor = 5;
  EXPECT_EQ(message_of([&] { decide_sharding(options, 12, 4); }),
            "sharding factor 5: does not divide the world of 12; one of 1, 2, 3, 4, 6, 12");
}

TEST(Decision, RefusesSettingsThatDisagree) {
  EXPECT_THAT(message_of([] {
                decide_sharding({.strategy = Strategy::no_shard, .sharding_factor = 2}, 4, 4);
              }),
              HasSubstr("sharding factor 2 with NO_SHARD"));
  EXPECT_THAT(message_of([] { decide_sharding({.zero_stage = 4}, 4, 4); }),
              HasSubstr("ZeRO stage 4: unknown"));
}

TEST(Decision, AreUsageErrors) {
  try {
    decide_sharding({.zero_stage = 4}, 4, 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
  }
}

}  // namespace
}  // namespace fullshard::engine
