#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/checkpoint/saved_state.h"
#include "tests/checkpoint/wide_model.h"
#include "tests/files.h"

namespace fullshard::testing {
namespace {

// Gives the signal that ended it.
int run_until_killed(const std::string& directory, const std::string& percent) {
  std::string program = FULLSHARD_TEST_PROGRAMS "/checkpoint_rank";
  std::string directory_argument = directory, percent_argument = percent;
  char* arguments[] = {program.data(), directory_argument.data(), percent_argument.data(), nullptr};
  pid_t pid = 0;
  if (posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments, environ) != 0) return -1;
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

// The instants are given as parts of the time that the save before took.
TEST(CheckpointKill, AKilledSaveIsWholeOrInvisible) {
  for (const auto* percent : {"0", "20", "45", "70", "95", "300"}) {
    SCOPED_TRACE(percent);
    const CheckpointsFolder folder;
    ASSERT_EQ(run_until_killed(folder.path(), percent), SIGKILL);
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
}

}  // namespace
}  // namespace fullshard::testing
