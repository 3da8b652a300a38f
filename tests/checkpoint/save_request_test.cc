// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/save_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "fullshard/stored/last_checkpoint.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

Error refusal(const CheckpointsFolder& folder, const std::string& name) {
  return error_of_call([&] { checkpoint::ask_for_save(folder.path(), name); });
}

void put_folder_with_notes(const std::string& path) {
  ::mkdir(path.c_str(), 0755);
  std::ofstream(path + "/notes.txt") << "mine";
}

TEST(SaveRequest, IsTakenOnce) {
  const CheckpointsFolder folder;
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), std::nullopt);
  checkpoint::ask_for_save(folder.path(), "before the weekend");
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), "before the weekend");
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), std::nullopt);
}

TEST(SaveRequest, HasANameThatACheckpointCanHave) {
  const CheckpointsFolder folder;
  for (const std::string name : {"", ".", "..", "../away", "a/b", "latest", "request",
                                 "step-000001", "a.part", "two\nlines"}) {
    const Error error = refusal(folder, name);
    EXPECT_EQ(error.kind(), ErrorKind::usage) << name;
    EXPECT_THAT(error.what(), HasSubstr("cannot be the name of a checkpoint")) << name;
  }
  EXPECT_FALSE(file_exists(folder / "request"));
}

// While it is written it is NAME.part, and a file system's names have at most 255 bytes.
TEST(SaveRequest, HasANameWithRoomForItsEnding) {
  const CheckpointsFolder folder;
  for (size_t bytes = 251; bytes <= 256; ++bytes) {
    const Error error = refusal(folder, std::string(bytes, 'n'));
    EXPECT_EQ(error.kind(), ErrorKind::usage) << bytes;
    EXPECT_THAT(error.what(), HasSubstr("of at most 250 bytes")) << bytes;
  }
  const std::string longest(250, 'n');
  checkpoint::ask_for_save(folder.path(), longest);
  const auto name = checkpoint::take_save_request(folder.path());
  ASSERT_EQ(name, longest);
  RankRun run(World::single(), plain_way(1).options, false);
  save_checkpoint(folder / *name, run.sharded, run.optimizer, {.step = 3});
  EXPECT_EQ(stored::last_checkpoint(folder.path()).folder, folder / longest);
}

TEST(SaveRequest, IsRefusedWhereSomethingElseHasTheName) {
  const CheckpointsFolder folder;
  put_folder_with_notes(folder / "mine");
  std::ofstream(folder / "list") << "mine";
  for (const std::string name : {"mine", "list"}) {
    const Error error = refusal(folder, name);
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_EQ(error.what(), "'" + name + "': " + folder / name +
                                " exists and is not a checkpoint, so it is not replaced; take "
                                "another name");
  }
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), std::nullopt);
  ::unlink((folder / "list").c_str());
}

TEST(SaveRequest, IsDroppedWhereSomethingElseHasComeByThatName) {
  const CheckpointsFolder folder;
  checkpoint::ask_for_save(folder.path(), "mine");
  put_folder_with_notes(folder / "mine");
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), std::nullopt);
  EXPECT_FALSE(file_exists(folder / "request"));
  EXPECT_EQ(read_file(folder / "mine/notes.txt"), "mine");
}

TEST(SaveRequest, MayNameACheckpointThatIsThere) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  save_checkpoint(folder / "mine", run.sharded, run.optimizer, {.step = 3});
  checkpoint::ask_for_save(folder.path(), "mine");
  EXPECT_EQ(checkpoint::take_save_request(folder.path()), "mine");
}

}  // namespace
}  // namespace fullshard::testing
