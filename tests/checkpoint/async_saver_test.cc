// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/async_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>

#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/small_disk.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

TEST(AsyncSaver, SavesWhatWasThereWhileTrainingGoesOn) {
  for (const auto strategy : {Strategy::full_shard, Strategy::no_shard}) {
    const CheckpointsFolder folder;
    WholeState at_save;
    std::mutex mutex;
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun run(world, plain_way(2, strategy).options, false);
      run.train(0, 3);
      run.collect(at_save, mutex);
      AsyncSaver saver;
      saver.save(folder / "three", run.sharded, run.optimizer, {.step = 3});
      EXPECT_TRUE(saver.is_saving());
      const bool writes = strategy == Strategy::full_shard || world.rank() == 0;
      // Nothing where nothing is written; nor where all was before it could be copied.
      if (!writes) {
        EXPECT_EQ(saver.copied_bytes(), 0);
      }
      for (int step = 3; step < 6; ++step) {
        run.train(step, step + 1);
        saver.poll();
      }
      saver.finish();
      EXPECT_FALSE(saver.is_saving());
    });
    expect_same_state(load_whole(plain_way(3), folder / "three"), at_save);
    EXPECT_EQ(read_file(folder / "latest"), "three\n");
  }
}

// What is not settled is written from where it is: forward and backward leave that alone.
TEST(AsyncSaver, WritesBesideForwardAndBackwardAndIsSettledBeforeAStep) {
  const CheckpointsFolder folder;
  WholeState at_save;
  std::mutex mutex;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    run.train(0, 3);
    run.collect(at_save, mutex);
    AsyncSaver saver;
    for (int step = 3; step < 6; ++step) {
      saver.start(folder / stored::checkpoint_name(step), run.sharded, run.optimizer,
                  {.step = step});
      run.model(small_batch(step, world.rank())).backward();
      saver.settle();
      run.optimizer.step();
      run.optimizer.zero_grad();
      saver.poll();
    }
    saver.finish();
    saver.settle();
  });
  expect_same_state(load_whole(plain_way(3), folder / "step-000003"), at_save);
  EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 5);
}

TEST(AsyncSaver, OneSaveIsFinishedBeforeTheNextBegins) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    AsyncSaver saver;
    saver.save(folder / "step-000001", run.sharded, run.optimizer, {.step = 1});
    saver.save(folder / "step-000002", run.sharded, run.optimizer, {.step = 2});
    EXPECT_TRUE(file_exists(folder / "step-000001/manifest.json"));
    saver.finish();
    EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 2);
    world.communicator().barrier("seen");
  });
}

TEST(AsyncSaver, WhatWentWrongIsThrownByALaterCallOnAllRanks) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    AsyncSaver saver;
    saver.save(folder / "step-000001", run.sharded, run.optimizer, {.step = 1});
    saver.finish();
    {
      std::optional<SmallDisk> disk;
      if (world.rank() == 0) disk.emplace(100);
      world.communicator().barrier("limited");
      saver.save(folder / "step-000002", run.sharded, run.optimizer, {.step = 2});
      const auto error = error_of_call([&] {
        while (saver.is_saving()) saver.poll();
      });
      EXPECT_THAT(error.what(), HasSubstr("step-000002.part/"));
      EXPECT_THAT(error.what(), HasSubstr("cannot be written at byte 100: "));
      EXPECT_FALSE(saver.is_saving());
      world.communicator().barrier("seen");
    }
    EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 1);
    world.communicator().barrier("looked at");
    saver.save(folder / "step-000003", run.sharded, run.optimizer, {.step = 3});
    saver.finish();
    EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 3);
  });
}

TEST(AsyncSaver, GivenUpItLeavesNothingThatCountsAsACheckpoint) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    AsyncSaver saver;
    saver.save(folder / "step-000001", run.sharded, run.optimizer, {.step = 1});
  });
  EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, "");
}

}  // namespace
}  // namespace fullshard::testing
