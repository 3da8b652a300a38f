// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/last_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "fullshard/stored/manifest.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

void save_steps(const CheckpointsFolder& folder, const std::vector<int64_t>& steps,
                const CheckpointOptions& options = {}) {
  RankRun run(World::single(), plain_way(1).options, false);
  for (const int64_t step : steps) {
    save_checkpoint(folder / stored::checkpoint_name(step), run.sharded, run.optimizer,
                    {.step = step}, options);
  }
}

TEST(LastCheckpoint, IsTheOneThatWasSavedLast) {
  const CheckpointsFolder folder;
  EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, "");
  EXPECT_EQ(stored::last_checkpoint(folder / "nothing").folder, "");
  save_steps(folder, {10, 20});
  const auto last = stored::last_checkpoint(folder.path());
  EXPECT_EQ(last.folder, folder / "step-000020");
  EXPECT_EQ(last.step, 20);
  EXPECT_TRUE(last.skipped.empty());
}

TEST(LastCheckpoint, SkipsWhatIsNotCompleteAndSaysWhy) {
  const CheckpointsFolder folder;
  save_steps(folder, {10, 20, 30, 40});
  ASSERT_EQ(::truncate((folder / "step-000040/exp_avg-00000.bin").c_str(), 10), 0);
  ::unlink((folder / "step-000030/weights-00000.bin").c_str());
  std::ofstream(folder / "step-000020/manifest.json", std::ios::trunc) << "{";
  ::mkdir((folder / "step-000050.part").c_str(), 0755);
  ::mkdir((folder / "step-000060").c_str(), 0755);
  ::mkdir((folder / "notes").c_str(), 0755);
  const auto last = stored::last_checkpoint(folder.path());
  EXPECT_EQ(last.folder, folder / "step-000010");
  EXPECT_THAT(last.skipped,
              UnorderedElementsAre(
                  StartsWith("step-000060: " + folder / "step-000060: has no manifest.json"),
                  "step-000050.part: was never finished",
                  HasSubstr("step-000020/manifest.json: invalid JSON"),
                  HasSubstr("exp_avg-00000.bin: has 10 bytes"),
                  HasSubstr("weights-00000.bin: cannot be found")));
}

TEST(LastCheckpoint, TakesANamedOneToo) {
  const CheckpointsFolder folder;
  save_steps(folder, {10});
  RankRun run(World::single(), plain_way(1).options, false);
  save_checkpoint(folder / "before-the-weekend", run.sharded, run.optimizer, {.step = 12});
  EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, folder / "before-the-weekend");
}

TEST(LastCheckpoint, OldOnesGoWhenTheNewOneIsInPlace) {
  const CheckpointsFolder folder;
  save_steps(folder, {1, 2, 3, 4});
  ::mkdir((folder / "step-000009.part").c_str(), 0755);
  save_steps(folder, {5}, {.num_kept = 2, .kept_names = {"step-000002"}});
  EXPECT_THAT(entries_of(folder.path()),
              UnorderedElementsAre("step-000002", "step-000004", "step-000005", "latest"));
}

// As if it had been saved by a clock that was a day ahead.
void set_ahead(const std::string& checkpoint, int64_t save_number) {
  auto manifest = stored::read_manifest(checkpoint);
  manifest.saved_at += 24 * 3600 * 1000;
  manifest.save_number = save_number;
  std::ofstream(checkpoint + "/" + stored::kManifestName, std::ios::trunc)
      << stored::manifest_text(manifest);
}

TEST(LastCheckpoint, IsTheOneSavedLastWhateverTheClockSays) {
  for (const bool has_numbers : {true, false}) {  // of versions before had none
    const CheckpointsFolder folder;
    save_steps(folder, {1, 2});
    set_ahead(folder / "step-000001", has_numbers ? 1 : 0);
    set_ahead(folder / "step-000002", has_numbers ? 2 : 0);
    EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 2);
    save_steps(folder, {3, 4}, {.num_kept = 2});
    EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 4);
    EXPECT_THAT(entries_of(folder.path()),
                UnorderedElementsAre("step-000003", "step-000004", "latest"));
    EXPECT_EQ(stored::read_manifest(folder / "step-000004").save_number, has_numbers ? 4 : 2);
  }
}

// A run that goes on at another host, whose clock is a day behind: the best one stays as well.
TEST(LastCheckpoint, OfAHostWhoseClockIsBehindIsTheNewestNextToTheBest) {
  for (const bool has_numbers : {true, false}) {
    const CheckpointsFolder folder;
    const std::vector<std::string> best = {"step-000002"};
    save_steps(folder, {1, 2, 3}, {.num_kept = 2, .kept_names = best});
    set_ahead(folder / "step-000002", has_numbers ? 2 : 0);
    set_ahead(folder / "step-000003", has_numbers ? 3 : 0);
    for (const int64_t step : {4, 5, 6}) {
      save_steps(folder, {step}, {.num_kept = 1, .kept_names = best});
      EXPECT_EQ(stored::last_checkpoint(folder.path()).step, step);
      EXPECT_THAT(entries_of(folder.path()),
                  UnorderedElementsAre("step-000002", stored::checkpoint_name(step), "latest"));
    }
  }
}

TEST(LastCheckpoint, PassesOverWhatItIsTold) {
  const CheckpointsFolder folder;
  save_steps(folder, {1, 2, 3});
  const auto last = stored::last_checkpoint(folder.path(), {"step-000003", "step-000009"});
  EXPECT_EQ(last.folder, folder / "step-000002");
  EXPECT_TRUE(last.skipped.empty());
}

// A step that is saved again is the newest then, and stays.
TEST(LastCheckpoint, NeverRemovesWhatWasJustWritten) {
  const CheckpointsFolder folder;
  save_steps(folder, {8, 9});
  save_steps(folder, {3}, {.num_kept = 1});
  EXPECT_THAT(entries_of(folder.path()), UnorderedElementsAre("step-000003", "latest"));
}

TEST(LastCheckpoint, ADamagedOneDoesNotCountAmongTheKept) {
  const CheckpointsFolder folder;
  save_steps(folder, {1, 2, 3});
  ::unlink((folder / "step-000003/weights-00000.bin").c_str());
  stored::remove_old_checkpoints(folder.path(), 1, {});
  EXPECT_THAT(entries_of(folder.path()),
              UnorderedElementsAre("step-000002", "step-000003", "latest"));
}

}  // namespace
}  // namespace fullshard::testing
