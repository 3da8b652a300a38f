// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <random>
#include <string>
#include <vector>

#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/wide_model.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr int kInstants = 30;

// Exit status of the program; -1: it did not end by itself.
int run_program(std::vector<std::string> words) {
  words.insert(words.begin(), FULLSHARD_TEST_PROGRAMS "/checkpoint_rank");
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return -1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void expect_whole_or_invisible(const CheckpointsFolder& folder) {
  const auto last = stored::last_checkpoint(folder.path());
  ASSERT_TRUE(last.step == 1 || last.step == 2) << last.folder;
  Wide model(600);
  auto sharded = shard(model, World::single());
  AdamW optimizer(sharded, {});
  load_checkpoint(last.folder, sharded, optimizer);
  for (const auto& parameter : model->parameters()) {
    EXPECT_TRUE(parameter.eq(static_cast<double>(last.step)).all().item<bool>());
  }
  // What is left does not disturb the next save.
  save_checkpoint(folder / "step-000002", sharded, optimizer, {.step = 2}, {.num_kept = 1});
  EXPECT_EQ(stored::last_checkpoint(folder.path()).skipped, std::vector<std::string>{});
  EXPECT_EQ(entries_of(folder.path()).size(), 2u);
}

// The instants are given as parts of the time that the save before took.
TEST(CheckpointKill, AKilledSaveIsWholeOrInvisible) {
  std::mt19937 random(1);
  const CheckpointsFolder folders[kInstants];
  std::vector<std::string> words;
  for (const auto& folder : folders) {
    words.push_back(folder.path());
    words.push_back(std::to_string(random() % 130));
  }
  ASSERT_EQ(run_program(words), 0);
  for (int i = 0; i < kInstants; ++i) {
    SCOPED_TRACE("killed after " + words[static_cast<size_t>(2 * i + 1)] + " % of a save");
    expect_whole_or_invisible(folders[i]);
  }
}

}  // namespace
}  // namespace fullshard::testing
