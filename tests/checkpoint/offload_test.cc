// SPDX-License-Identifier: Apache-2.0
// Checkpoints of states that rest in host memory load where they do not, and the reverse.
#include <gtest/gtest.h>

#include "fullshard/checkpoint/async_saver.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"
#include "tests/offload_options.h"

namespace fullshard::testing {
namespace {

Way with_offload(Way way) {
  way.name += ", states in host memory";
  way.options.offload = states_in_host_memory(12 * 16, 2);
  way.options.offload.ratio = 0.7;
  return way;
}

TEST(CheckpointWithOffload, LoadsWithoutAndTheReverseBitForBit) {
  const CheckpointsFolder folder;
  for (const int ranks : {1, 2, 3}) {
    const Way plain = plain_way(ranks);
    const auto resident = train_and_save(plain, folder / "resident", 3);
    const auto streamed = train_and_save(with_offload(plain), folder / "streamed", 3);
    expect_same_state(streamed, resident);
    for (const auto& way : {plain, with_offload(plain), with_offload(in_bf16(plain_way(2)))}) {
      SCOPED_TRACE(way.name);
      expect_same_state(load_whole(way, folder / "resident"), resident);
      expect_same_state(load_whole(way, folder / "streamed"), resident);
    }
  }
}

// Saved from every tier, and loaded into it.
TEST(CheckpointWithOffload, OfEveryResidenceIsTheSame) {
  const CheckpointsFolder folder;
  const TemporaryFolder disk;
  for (const int ranks : {1, 2}) {
    for (const bool narrow : {false, true}) {
      const Way plain = narrow ? in_bf16(plain_way(ranks)) : plain_way(ranks);
      const auto resident = train_and_save(plain, folder / "resident", 3);
      for (const auto& [name, offload] : residences(disk.path())) {
        SCOPED_TRACE(name);
        Way way = plain;
        way.options.offload = offload;
        expect_same_state(train_and_save(way, folder / "elsewhere", 3), resident);
        expect_same_state(load_whole(way, folder / "resident"), resident);
        expect_same_state(load_whole(plain, folder / "elsewhere"), resident);
      }
    }
  }
}

TEST(CheckpointWithOffload, TrainingGoesOnFromItAsIfItHadNotBeenInterrupted) {
  const CheckpointsFolder folder;
  for (const int ranks : {1, 2}) {
    const Way plain = plain_way(ranks, Strategy::shard_grad_op);
    WholeState whole, resumed;
    std::mutex mutex;
    run_ranks({.ranks = ranks}, [&](const World& world) {
      RankRun run(world, plain.options, false);
      run.train(0, 8);
      run.collect(whole, mutex);
    });
    run_ranks({.ranks = ranks}, [&](const World& world) {
      RankRun run(world, with_offload(plain).options, false);
      run.train(0, 4);
      save_checkpoint(folder / "four", run.sharded, run.optimizer, {.step = 4});
    });
    run_ranks({.ranks = ranks}, [&](const World& world) {
      RankRun run(world, with_offload(plain).options, true);
      load_checkpoint(folder / "four", run.sharded, run.optimizer);
      run.train(4, 8);
      run.collect(resumed, mutex);
    });
    expect_same_state(resumed, whole);
  }
}

// The files are of the step after which the save began, whatever training does meanwhile.
TEST(CheckpointWithOffload, IsWrittenWhileTrainingGoesOn) {
  const CheckpointsFolder folder;
  for (const int ranks : {1, 2}) {
    const Way way = with_offload(plain_way(ranks));
    const auto expected = train_and_save(plain_way(ranks), folder / "expected", 3);
    run_ranks({.ranks = ranks}, [&](const World& world) {
      RankRun run(world, way.options, false);
      run.train(0, 3);
      AsyncSaver saver;
      saver.save(folder / "aside", run.sharded, run.optimizer, {.step = 3});
      run.train(3, 6);
      saver.finish();
    });
    expect_same_state(load_whole(way, folder / "aside"), expected);
  }
}

// States of a disk may be more than memory holds: they are waited for, not copied.
TEST(CheckpointWithOffload, CopiesNothingOfADiskIntoMemoryWhileTrainingGoesOn) {
  const CheckpointsFolder folder;
  const TemporaryFolder disk;
  for (const int ranks : {1, 2}) {
    const auto expected = train_and_save(plain_way(ranks), folder / "expected", 3);
    for (const std::string name :
         {"parameters and states on disk", "parameters and states on disk of a CPU device"}) {
      SCOPED_TRACE(name);
      Way way = plain_way(ranks);
      way.options.offload = residences(disk.path()).at(name);
      run_ranks({.ranks = ranks}, [&](const World& world) {
        RankRun run(world, way.options, false);
        run.train(0, 3);
        AsyncSaver saver;
        saver.start(folder / "aside", run.sharded, run.optimizer, {.step = 3});
        saver.settle();
        run.train(3, 6);
        saver.finish();
        EXPECT_EQ(saver.copied_bytes(), 0);
      });
      expect_same_state(load_whole(way, folder / "aside"), expected);
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
