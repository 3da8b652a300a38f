// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// Two hosts with one disk each.
struct Hosts {
  CheckpointsFolder disks[2];

  std::string folder(const World& world) const {
    return disks[world.host_of(world.rank())] / "one";
  }

  WholeState save(const Way& way, int ranks_per_host) const {
    return save(way, {.ranks = way.ranks, .backend = "gloo", .ranks_per_host = ranks_per_host});
  }

  WholeState save(const Way& way, const ThreadRanks& ranks) const {
    WholeState state;
    std::mutex mutex;
    run_ranks(ranks, [&](const World& world) {
      RankRun run(world, way.options, false);
      run.train(0, 2);
      save_checkpoint(folder(world), run.sharded, run.optimizer, {.step = 2},
                      {.is_node_local = true});
      run.collect(state, mutex);
    });
    return state;
  }

  WholeState load(const Way& way, int ranks_per_host) const {
    WholeState state;
    std::mutex mutex;
    run_ranks({.ranks = way.ranks, .backend = "gloo", .ranks_per_host = ranks_per_host},
              [&](const World& world) {
                RankRun run(world, way.options, true);
                load_checkpoint(folder(world), run.sharded, run.optimizer);
                run.collect(state, mutex);
              });
    return state;
  }
};

TEST(NodeLocal, EveryHostWritesWhatItsRanksHoldAndLoadsItAgain) {
  const Hosts hosts;
  const auto state = hosts.save(plain_way(2), 1);
  EXPECT_THAT(entries_of(hosts.disks[0] / "one"),
              UnorderedElementsAre("weights-00000.bin", "exp_avg-00000.bin", "exp_avg_sq-00000.bin",
                                   "manifest.json"));
  EXPECT_THAT(entries_of(hosts.disks[1] / "one"),
              UnorderedElementsAre("weights-00001.bin", "exp_avg-00001.bin", "exp_avg_sq-00001.bin",
                                   "manifest.json"));
  EXPECT_EQ(stored::last_checkpoint(hosts.disks[1].path()).step, 2);
  expect_same_state(hosts.load(plain_way(2), 1), state);
}

TEST(NodeLocal, WhatLiesOnAnotherHostIsNamed) {
  const Hosts hosts;
  hosts.save(plain_way(2), 1);
  const auto error = error_of_call([&] { load_whole(plain_way(1), hosts.disks[0] / "one"); });
  EXPECT_EQ(error.kind(), ErrorKind::input);
  EXPECT_THAT(error.what(),
              HasSubstr("this rank needs files of other hosts, which it cannot see: "));
  EXPECT_THAT(error.what(), HasSubstr("one/weights-00001.bin"));
  EXPECT_THAT(error.what(), HasSubstr("one/exp_avg_sq-00001.bin"));
}

TEST(NodeLocal, AHostThatHoldsAWholeReplicaNeedsNoOther) {
  const Hosts hosts;
  auto hybrid = plain_way(4, Strategy::hybrid_shard);
  hybrid.options.sharding.sharding_factor = 2;
  const auto state = hosts.save(hybrid, 2);
  for (const auto& disk : hosts.disks) {
    expect_same_state(load_whole(plain_way(3), disk / "one"), state);
  }
}

TEST(NodeLocal, RanksDealtOutInTurnLeaveAWholeReplicaOnEveryHost) {
  const Hosts hosts;
  const auto hybrid = plain_way(4, Strategy::hybrid_shard);
  const auto state = hosts.save(hybrid, {.ranks = 4, .backend = "gloo", .hosts = {0, 1, 0, 1}});
  for (const auto& disk : hosts.disks) {
    expect_same_state(load_whole(plain_way(3), disk / "one"), state);
  }
}

TEST(NodeLocal, FoldersOfTwoSavesAreNotMixed) {
  const Hosts hosts, later;
  hosts.save(plain_way(2), 1);
  later.save(plain_way(2), 1);
  run_ranks({.ranks = 2, .backend = "gloo", .ranks_per_host = 1}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, true);
    const auto& mixed = world.rank() == 0 ? hosts : later;
    const auto error =
        error_of_call([&] { load_checkpoint(mixed.folder(world), run.sharded, run.optimizer); });
    EXPECT_THAT(error.what(),
                HasSubstr("rank 0 and rank 1 see the folders of two different saves"));
  });
}

}  // namespace
}  // namespace fullshard::testing
