#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/wide_model.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

constexpr int kInstants = 30;
constexpr int kAtOnce = 3;  // processes

pid_t start(const std::string& directory, const std::string& percent) {
  std::string program = FULLSHARD_TEST_PROGRAMS "/checkpoint_rank";
  std::string directory_argument = directory, percent_argument = percent;
  char* arguments[] = {program.data(), directory_argument.data(), percent_argument.data(), nullptr};
  pid_t pid = 0;
  return posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments, environ) == 0 ? pid : -1;
}

// The signal that ended it.
int signal_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

void expect_whole_or_invisible(const CheckpointsFolder& folder) {
  const auto last = last_checkpoint(folder.path());
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
  EXPECT_EQ(last_checkpoint(folder.path()).skipped, std::vector<std::string>{});
  EXPECT_EQ(entries_of(folder.path()).size(), 2u);
}

// The instants are given as parts of the time that the save before took.
TEST(CheckpointKill, AKilledSaveIsWholeOrInvisible) {
  std::mt19937 random(1);
  for (int first = 0; first < kInstants; first += kAtOnce) {
    const CheckpointsFolder folders[kAtOnce];
    pid_t pids[kAtOnce];
    std::string percents[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      percents[i] = std::to_string(random() % 130);
      pids[i] = start(folders[i].path(), percents[i]);
      ASSERT_GT(pids[i], 0);
    }
    for (int i = 0; i < kAtOnce; ++i) {
      SCOPED_TRACE(percents[i]);
      EXPECT_EQ(signal_of(pids[i]), SIGKILL);
      expect_whole_or_invisible(folders[i]);
    }
  }
}

}  // namespace
}  // namespace fullshard::testing
