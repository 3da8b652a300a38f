// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

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

// Its disk takes the files and then not the manifest; the other host's takes everything.
TEST(NodeLocal, AHostThatCannotFinishLeavesAllTheCheckpointBefore) {
  const CheckpointsFolder disks[2];
  run_ranks({.ranks = 2, .backend = "gloo", .ranks_per_host = 1}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    const auto& disk = disks[world.rank()];
    save_checkpoint(disk / "step-000002", run.sharded, run.optimizer, {.step = 2},
                    {.is_node_local = true, .num_kept = 1});
    CheckpointOptions options{.is_node_local = true, .num_kept = 1};
    options.write_beside = [&](const std::string& part) {
      if (world.rank() == 1) std::filesystem::create_directory(part + "/manifest.json");
    };
    const auto error = error_of_call([&] {
      save_checkpoint(disk / "step-000004", run.sharded, run.optimizer, {.step = 4}, options);
    });
    EXPECT_THAT(error.what(), HasSubstr("step-000004.part/manifest.json: "));
    EXPECT_EQ(error.kind(), ErrorKind::failed) << "it is no invalid input";
  });
  for (const auto& disk : disks) {
    EXPECT_EQ(stored::checkpoint_problem(disk / "step-000002"), "");
  }
  EXPECT_EQ(stored::last_checkpoint(disks[1].path()).step, 2);
  std::filesystem::remove_all(disks[1] / "step-000004.part");
}

TEST(NodeLocal, TheOlderOnesGoFromEveryHostWhenAllHaveTheNewOne) {
  const CheckpointsFolder disks[2];
  run_ranks({.ranks = 2, .backend = "gloo", .ranks_per_host = 1}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    for (const int64_t step : {2, 4, 6}) {
      save_checkpoint(disks[world.rank()] / stored::checkpoint_name(step), run.sharded,
                      run.optimizer, {.step = step}, {.is_node_local = true, .num_kept = 2});
    }
  });
  for (const auto& disk : disks) {
    EXPECT_THAT(entries_of(disk.path()),
                UnorderedElementsAre("step-000004", "step-000006", "latest"));
  }
}

// What the system says of it alone is that a file cannot be created.
TEST(NodeLocal, ASaveOnDisksThatAreNotOneSaysWhatToDo) {
  const CheckpointsFolder disks[2];
  run_ranks({.ranks = 2, .backend = "gloo", .ranks_per_host = 1}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    const auto error = error_of_call([&] {
      save_checkpoint(disks[world.rank()] / "one", run.sharded, run.optimizer, {.step = 2});
    });
    EXPECT_THAT(error.what(), HasSubstr("rank 1: "));
    EXPECT_THAT(error.what(),
                HasSubstr("one.part/weights-00001.bin: cannot be created: No such file or "
                          "directory; rank 0 made this folder, and here it is not there: save "
                          "where all hosts see the same disk, or on every host's own "
                          "(--node-local, CheckpointOptions::is_node_local)"));
  });
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
