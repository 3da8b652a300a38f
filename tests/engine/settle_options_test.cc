// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/settle_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/engine/engine.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/plan/option_texts.h"
#include "fullshard/engine/sharded_model.h"
#include "tests/engine/assembled_model.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

std::string settling_error(const std::function<void(ShardOptions& options, int rank)>& change,
                           int ranks = 2) {
  return message_of([&] {
    run_ranks({.ranks = ranks}, [&](const World& world) {
      ScaledTwice model;
      ShardOptions options;
      change(options, world.rank());
      engine::settle_options(options, *model, world);
    });
  });
}

TEST(SettleOptions, NamesEveryOptionThatRanksWereToldDifferently) {
  const auto message = settling_error([](ShardOptions& options, int rank) {
    options.sharding.zero_stage = rank == 0 ? 3 : 2;
    if (rank == 1) options.param_dtype = at::kBFloat16;
    if (rank == 1) options.wrap = WrapPolicy::classes({"Block", "Head"});
    if (rank == 0) options.ignored_modules = "head";
    options.offload.optimizer.tier = rank == 0 ? tiers::Tier::device : tiers::Tier::host;
  });
  EXPECT_EQ(message,
            "shard: ranks were given different options: sharding.zero_stage is 3 on rank 0 and 2 "
            "on rank 1; wrap is marked on rank 0 and classes Block, Head on rank 1; "
            "ignored_modules is 'head' on rank 0 and '' on rank 1; param_dtype is not set on rank "
            "0 and BFloat16 on rank 1; offload.optimizer.tier is device on rank 0 and host on rank "
            "1; give all ranks the same ShardOptions");
}

TEST(SettleOptions, NamesTheFirstRankThatDiffers) {
  const auto message = settling_error(
      [](ShardOptions& options, int rank) { options.broadcast_buffers = rank < 2; }, /*ranks=*/4);
  EXPECT_EQ(message,
            "shard: ranks were given different options: broadcast_buffers is true on rank 0 and "
            "false on rank 2; give all ranks the same ShardOptions");
}

TEST(SettleOptions, HostsMayHaveFoldersOfTheirOwn) {
  EXPECT_EQ(settling_error([](ShardOptions& options, int rank) {
              options.offload.optimizer.folder = rank == 0 ? "/fast" : "/local";
              options.offload.disk.queue_depth = 4 + rank;
            }),
            "no error");
}

TEST(SettleOptions, RanksThatWereToldTheSameAgree) {
  EXPECT_EQ(settling_error([](ShardOptions& options, int) {
              options.wrap = WrapPolicy::predicate([](const WrapCandidate&) { return true; });
              options.recompute = RecomputePolicy::all();
            }),
            "no error");
}

TEST(SettleOptions, OneRankHasNothingToTake) {
  ScaledTwice model;
  EXPECT_FALSE(engine::settle_options({}, *model, World::single()).sync_module_states);
  EXPECT_TRUE(ShardOptions().sync_module_states);
}

TEST(SettleOptions, TakingRank0sValuesKeepsNoMemory) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ScaledTwice own, taken;
    auto with_own = shard(own, world, {.sync_module_states = false});
    auto with_rank_0s = shard(taken, world);
    const auto reserved = [](const ShardedModel& sharded) {
      return engine::EngineAccess::of(sharded).pool()->reserved_bytes();
    };
    EXPECT_EQ(reserved(with_rank_0s), reserved(with_own));
    EXPECT_EQ(with_rank_0s.ledger().held_total(), with_own.ledger().held_total());
    EXPECT_GT(with_rank_0s.ledger().peak(tiers::Purpose::workspace), 0);
  });
}

TEST(OptionTexts, HaveNamesOfTheirOwn) {
  const auto texts = engine::option_texts({});
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(texts[i].name, texts[j].name);
  }
}

}  // namespace
}  // namespace fullshard::testing
