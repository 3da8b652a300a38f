// SPDX-License-Identifier: Apache-2.0
// A checkpoint is on the disk, not only in the system's memory, before anything says that it is
// there.
#include "tests/checkpoint/flushes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "fullshard/checkpoint/async_saver.h"
#include "fullshard/checkpoint/fp32_state.h"
#include "fullshard/stored/fp32_export.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using Events = std::vector<std::string>;

// Two ranks save once under a name that is new, and once more under the same name.
Events events_of_save(const CheckpointsFolder& folder, bool is_async) {
  const Flushes flushes(folder.path());
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, plain_way(2).options, false);
    if (!is_async) return save_checkpoint(folder / "one", run.sharded, run.optimizer, {});
    AsyncSaver saver;
    saver.save(folder / "one", run.sharded, run.optimizer, {});
    saver.finish();
  });
  return flushes.events();
}

void expect_all_flushed_in_order(const Events& events) {
  constexpr size_t kDataFiles = 6;
  ASSERT_EQ(events.size(), kDataFiles + 7);
  // Ranks write at the same time.
  EXPECT_THAT(Events(events.begin(), events.begin() + kDataFiles),
              UnorderedElementsAre(
                  "fsync one.part/weights-00000.bin", "fsync one.part/weights-00001.bin",
                  "fsync one.part/exp_avg-00000.bin", "fsync one.part/exp_avg-00001.bin",
                  "fsync one.part/exp_avg_sq-00000.bin", "fsync one.part/exp_avg_sq-00001.bin"));
  EXPECT_THAT(
      Events(events.begin() + kDataFiles, events.end()),
      ElementsAre("fsync one.part/manifest.json", "fsync one.part", "rename one.part to one",
                  "fsync .", "fsync latest.part", "rename latest.part to latest", "fsync ."));
}

TEST(Flushes, ACheckpointIsOnTheDiskBeforeItHasItsName) {
  for (const bool is_async : {false, true}) {
    const CheckpointsFolder folder;
    expect_all_flushed_in_order(events_of_save(folder, is_async));
    expect_all_flushed_in_order(events_of_save(folder, is_async));  // exchanged for the old one
  }
}

TEST(Flushes, LatestIsReplacedAndNotWrittenInPlace) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(1), folder / "first", 1);
  ASSERT_EQ(::link((folder / "latest").c_str(), (folder / "seen").c_str()), 0);
  train_and_save(plain_way(1), folder / "second", 1);
  EXPECT_EQ(read_file(folder / "latest"), "second\n");
  EXPECT_EQ(read_file(folder / "seen"), "first\n") << "a reader's file changed under its hands";
}

TEST(Flushes, AModelIsOnTheDiskBeforeItHasItsName) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  ASSERT_EQ(::mkdir((folder / "model").c_str(), 0755), 0);
  const Flushes flushes(folder.path());
  save_model(folder / "model", run.sharded);
  EXPECT_THAT(
      flushes.events(),
      ElementsAre("fsync model/model.safetensors.part",
                  "rename model/model.safetensors.part to model/model.safetensors", "fsync model"));
}

TEST(Flushes, AnExportIsOnTheDiskBeforeItHasItsName) {
  const CheckpointsFolder folder;
  train_and_save(plain_way(2), folder / "one", 1);
  for (const std::string name : {"pytorch_model.bin", "model.safetensors"}) {
    const std::string out = "as/" + name;
    const Flushes flushes(folder.path());
    stored::export_weights(stored::open_any(folder / "one"), folder / out);
    EXPECT_THAT(flushes.events(), ElementsAre("fsync " + out + ".part",
                                              "rename " + out + ".part to " + out, "fsync as"));
  }
}

}  // namespace
}  // namespace fullshard::testing
