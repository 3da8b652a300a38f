// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/found_checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <type_traits>

#include "fullshard/base/error.h"
#include "fullshard/stored/any_checkpoint.h"
#include "fullshard/stored/manifest.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

// Nobody who is handed one can have it from anywhere but a look, or from whoever looked.
static_assert(!std::is_default_constructible_v<stored::FoundCheckpoint>);
static_assert(!std::is_constructible_v<stored::FoundCheckpoint, std::string>);
static_assert(
    !std::is_constructible_v<stored::FoundCheckpoint, stored::CheckpointKind, std::string>);

std::string fixture_of(const std::string& name) {
  return std::string(FULLSHARD_SOURCE_DIR) + "/tests/fixtures/checkpoints/" + name;
}

// A checkpoint of ours without tensors.
void save_own(const std::string& folder, int64_t saved_at) {
  ::mkdir(folder.c_str(), 0777);
  stored::Manifest manifest;
  manifest.saved_at = saved_at;
  manifest.num_ranks = manifest.num_shards = 1;
  manifest.strategy = "FULL_SHARD";
  std::ofstream(folder + "/" + stored::kManifestName) << stored::manifest_text(manifest);
}

class FoundCheckpoints : public ::testing::Test {
 protected:
  // TemporaryFolder removes files only.
  ~FoundCheckpoints() override {
    [[maybe_unused]] const int status = std::system(("rm -rf " + folder_.path()).c_str());
  }
  std::string own(const std::string& name, int64_t saved_at) {
    save_own(folder_.file(name), saved_at);
    return folder_.file(name);
  }

  TemporaryFolder folder_;
};

TEST_F(FoundCheckpoints, AreKnownByTheirContents) {
  const auto kind_of = [](const std::string& name) {
    return stored::FoundCheckpoint::find(fixture_of(name)).kind();
  };
  EXPECT_EQ(kind_of("zero2"), stored::CheckpointKind::deepspeed);
  EXPECT_EQ(kind_of("zero2_bf16/global_step2"), stored::CheckpointKind::deepspeed);
  EXPECT_EQ(kind_of("dcp"), stored::CheckpointKind::dcp);
  EXPECT_EQ(kind_of("accelerate"), stored::CheckpointKind::accelerate);
  EXPECT_EQ(kind_of("zero3.safetensors"), stored::CheckpointKind::weights);
  EXPECT_EQ(stored::FoundCheckpoint::find(own("step-000001", 1)).kind(),
            stored::CheckpointKind::own);
}

TEST_F(FoundCheckpoints, OfAFolderOfSeveralAreTheNewest) {
  own("step-000001", 1);
  const std::string second = own("step-000002", 2);
  const auto found = stored::FoundCheckpoint::find(folder_.path());
  EXPECT_TRUE(found.is_own());
  EXPECT_EQ(found.path(), second);
  EXPECT_EQ(stored::FoundCheckpoint::find_to_resume(folder_.path()).path(), second);
  EXPECT_EQ(stored::FoundCheckpoint::find(folder_.path(), "step-000001").path(),
            folder_.file("step-000001"));
}

// What was found is opened: a newer one that comes meanwhile changes nothing.
TEST_F(FoundCheckpoints, AreNotLookedForAgainWhenTheyAreOpened) {
  const std::string first = own("step-000001", 1);
  const auto found = stored::FoundCheckpoint::find(folder_.path());
  own("step-000002", 2);
  EXPECT_EQ(stored::open_any(found).path, first);
  EXPECT_EQ(stored::open_any(folder_.path()).path, folder_.file("step-000002"));
}

// Nor is the kind: one that was told is taken at its word.
TEST_F(FoundCheckpoints, ThatWereToldAreTakenAtTheirWord) {
  const auto told =
      stored::FoundCheckpoint::as_told(stored::CheckpointKind::dcp, fixture_of("zero2"));
  EXPECT_EQ(told.kind(), stored::CheckpointKind::dcp);
  EXPECT_NE(message_of([&] { stored::open_any(told); }), "no error");
}

// To resume, ours wins over another program's beside it; a command that reads takes the other's.
TEST_F(FoundCheckpoints, ToResumeAreOursFirst) {
  const std::string ours = own("step-000001", 1);
  ::mkdir(folder_.file("global_step1").c_str(), 0777);
  std::ofstream(folder_.file("latest")) << "global_step1";
  std::ofstream(folder_.file("global_step1/mp_rank_00_model_states.pt")) << "";
  EXPECT_EQ(stored::FoundCheckpoint::find_to_resume(folder_.path()).path(), ours);
  EXPECT_EQ(stored::FoundCheckpoint::find(folder_.path()).kind(),
            stored::CheckpointKind::deepspeed);
}

TEST_F(FoundCheckpoints, ToResumeOfDeepSpeedAreTheOneThatLatestNames) {
  const auto found = stored::FoundCheckpoint::find_to_resume(fixture_of("zero2"));
  EXPECT_EQ(found.kind(), stored::CheckpointKind::deepspeed);
  EXPECT_EQ(found.path().find(fixture_of("zero2") + "/"), 0U);
}

TEST_F(FoundCheckpoints, SayWhatIsMissing) {
  EXPECT_EQ(message_of([] { stored::FoundCheckpoint::find("absent"); }), "absent: does not exist");
  EXPECT_EQ(message_of([] { stored::FoundCheckpoint::find(fixture_of("dcp"), "a"); }),
            fixture_of("dcp") + ": has no checkpoint 'a'");
  ::mkdir(folder_.file("step-000003.part").c_str(), 0777);
  for (const auto& find :
       {+[](const std::string& path) { return stored::FoundCheckpoint::find(path); },
        +[](const std::string& path) { return stored::FoundCheckpoint::find_to_resume(path); }}) {
    EXPECT_EQ(
        message_of([&] { find(folder_.path()); }),
        folder_.path() + ": has no complete checkpoint: step-000003.part: was never finished");
  }
  std::ofstream(folder_.file("weights-00000.bin")) << "";
  EXPECT_EQ(message_of([&] { stored::FoundCheckpoint::find(folder_.path()); }),
            folder_.path() +
                ": has no manifest.json, which describes the contents of its files; the checkpoint "
                "is incomplete: copy it again or use another");
}

}  // namespace
}  // namespace fullshard::testing
