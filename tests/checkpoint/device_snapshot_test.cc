// SPDX-License-Identifier: Apache-2.0
// How often and when an accelerator's values are copied for a checkpoint, on one that the test
// plays: tests/training_cuda has the same with a GPU.
#include "fullshard/checkpoint/device_snapshot.h"

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/running_save.h"
#include "tests/checkpoint/fake_device.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/snapshot_bytes.h"
#include "tests/checkpoint/wide_model.h"
#include "tests/files.h"
#include "tests/master_halves.h"

namespace fullshard::testing {
namespace {

std::vector<ShardOptions> snapshot_ways() {
  auto halves = halves_options(3, true);
  halves.ignored_modules = "aside";
  return {plain_way(2).options, in_bf16(plain_way(2)).options, halves};
}

// The copies run when the step after the save is about to change the values: those before it are in
// the files, each byte copied once, and training was held once for each save.
TEST(DeviceSnapshot, AnAsynchronousSaveHasTheBitsOfASynchronousOneAndCopiesEachByteOnce) {
  for (const auto& options : snapshot_ways()) {
    const CheckpointsFolder folder;
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun run(world, options, false);
      run.train(0, 2);
      FakeDevice device(true);
      AsyncSaver saver(std::move(device.snapshot));
      for (int save = 1; save <= 2; ++save) {
        save_checkpoint(folder / fmt::format("sync{}", save), run.sharded, run.optimizer, {});
        device.copies->be_late(true);
        saver.start(folder / fmt::format("async{}", save), run.sharded, run.optimizer, {});
        run.model(small_batch(save, world.rank())).backward();
        run.model->scale.add_(1);  // as a forward may
        EXPECT_EQ(device.copies->num_held, save - 1);
        saver.settle();
        run.optimizer.step();
        run.optimizer.zero_grad();
        device.copies->be_late(false);  // what was not copied by now has other values
        saver.finish();
        EXPECT_EQ(device.copies->num_followed, save);
        EXPECT_EQ(device.copies->num_held, save);
        EXPECT_EQ(device.copies->copied_bytes(), save * bytes_to_save(run.sharded));
      }
      // Three files of less than one window each.
      EXPECT_EQ(*device.asked,
                (std::vector<int64_t>{2 * stored::kWriteBytes, stored::kWriteBytes}));
      EXPECT_EQ(saver.copied_bytes(), 3 * stored::kWriteBytes);
    });
    for (const char* save : {"1", "2"}) {
      expect_same_files(folder / (std::string("async") + save),
                        folder / (std::string("sync") + save), 6);
    }
  }
}

// What changes values while a save copies them, without the caller's settle().
using Change = std::function<void(RankRun& run, std::optional<AdamW>& optimizer)>;

std::map<std::string, Change> changes(const std::string& other) {
  std::map<std::string, Change> changes;
  changes["a step"] = [](RankRun&, std::optional<AdamW>& optimizer) { optimizer->step(); };
  changes["another checkpoint"] = [other](RankRun& run, std::optional<AdamW>& optimizer) {
    load_checkpoint(other, run.sharded, *optimizer);
  };
  changes["a scope that writes"] = [](RankRun& run, std::optional<AdamW>&) {
    const at::NoGradGuard no_grad;
    auto full = run.sharded.gather_full({.write_back = true});
    for (auto& parameter : run.model->parameters()) parameter.fill_(3);
  };
  changes["the end of the optimizer"] = [](RankRun& run, std::optional<AdamW>& optimizer) {
    optimizer.reset();
    AdamW(run.sharded, {});  // may have the memory of its states
  };
  return changes;
}

TEST(DeviceSnapshot, WhateverChangesValuesWaitsForASaveThatNobodySettled) {
  const CheckpointsFolder folder;
  std::vector<std::string> names;
  for (const auto& [name, change] : changes(folder / "other")) names.push_back(name);
  for (const auto& options : snapshot_ways()) {
    for (const auto& what : names) {
      SCOPED_TRACE(what);
      run_ranks({.ranks = 2}, [&](const World& world) {
        RankRun run(world, options, false);
        std::optional<AdamW> optimizer(std::in_place, run.sharded, AdamWOptions{});
        const auto backward = [&](int step) {
          run.model(small_batch(step, world.rank())).backward();
        };
        backward(0);
        optimizer->step();
        save_checkpoint(folder / "other", run.sharded, *optimizer, {});
        backward(1);
        optimizer->step();
        save_checkpoint(folder / "sync", run.sharded, *optimizer, {});
        FakeDevice device(true);
        AsyncSaver saver(std::move(device.snapshot));
        device.copies->be_late(true);
        saver.start(folder / "async", run.sharded, *optimizer, {});
        backward(2);
        EXPECT_EQ(device.copies->num_held, 0);
        changes(folder / "other").at(what)(run, optimizer);
        EXPECT_EQ(device.copies->num_held, 1);
        device.copies->be_late(false);
        saver.finish();
      });
      expect_same_files(folder / "async", folder / "sync", 6);
    }
  }
}

// A model of more windows than are under way at a time: those are all the memory that a synchronous
// save takes, and one that runs aside takes one for each.
TEST(DeviceSnapshot, LargeFilesGoThroughWindows) {
  constexpr int64_t kWidth = 2000;                         // 16 MB of weights
  constexpr int64_t kElements = kWidth * kWidth + kWidth;  // a multiple of every alignment
  constexpr int64_t kWindows = 3 * (kElements * 4 / stored::kWriteBytes + 1);
  const CheckpointsFolder folder;
  Wide model(kWidth);
  const auto sharded = shard(model, World::single());
  AdamW optimizer(sharded, {});
  model(at::ones({1, kWidth})).sum().backward();
  optimizer.step();
  save_checkpoint(folder / "sync", sharded, optimizer, {});

  FakeDevice in_turns(false), at_once(false);
  checkpoint::RunningSave save(folder / "in_turns", sharded, optim::states_of(sharded, optimizer),
                               {}, {}, false, in_turns.snapshot.get());
  while (!save.poll(std::chrono::seconds(1))) {
  }
  EXPECT_EQ(in_turns.copies->copied_bytes(), 3 * kElements * 4);
  EXPECT_EQ(in_turns.copies->num_copies(), kWindows);
  EXPECT_EQ(in_turns.copies->num_held, 0);
  EXPECT_LE(in_turns.snapshot->windows->bytes(), 6 * stored::kWriteBytes);
  expect_same_files(folder / "in_turns", folder / "sync", 3);

  AsyncSaver saver(std::move(at_once.snapshot));
  saver.save(folder / "at_once", sharded, optimizer, {});
  saver.finish();
  EXPECT_EQ(at_once.copies->num_copies(), kWindows);
  EXPECT_EQ(saver.copied_bytes(), kWindows * stored::kWriteBytes);
  expect_same_files(folder / "at_once", folder / "sync", 3);
}

// An abandoned save leaves nothing under way that writes into windows of the next one.
TEST(DeviceSnapshot, WindowsComeBackFromASaveThatIsGivenUp) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  FakeDevice device(false);
  {
    checkpoint::RunningSave save(folder / "one", run.sharded,
                                 optim::states_of(run.sharded, run.optimizer), {}, {}, true,
                                 device.snapshot.get());
  }
  checkpoint::RunningSave save(folder / "two", run.sharded,
                               optim::states_of(run.sharded, run.optimizer), {}, {}, true,
                               device.snapshot.get());
  EXPECT_EQ(device.snapshot->windows->bytes(), 3 * stored::kWriteBytes);
}

TEST(DeviceSnapshot, TheCpuHasNone) {
  EXPECT_EQ(checkpoint::make_device_snapshot(at::kCPU, std::make_shared<Ledger>()), nullptr);
}

}  // namespace
}  // namespace fullshard::testing
