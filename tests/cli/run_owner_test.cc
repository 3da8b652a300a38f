// SPDX-License-Identifier: Apache-2.0
// An output folder has one owner; standard streams that go away or are full; who is a rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/cli/long_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class RunOwner : public LongRuns {};

std::string host() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

// Every way to start a second run, also as a rank of torchrun, leaves the first alone.
TEST_F(RunOwner, NoSecondRunStartsBesideALiveOne) {
  const std::string second = "fullshard " + short_run("run");
  const std::string as_rank =
      "RANK=0 WORLD_SIZE=1 fullshard " + words("run", "3") + "--resume auto";
  const launch::Ended ended = run_and(
      endless("run") + "--ranks 2 --save-every 1",
      until_checkpoint("run") +
          "echo $launcher > owner; for how in '' --overwrite '--resume auto'; "
          "do " +
          second + " $how > refusal 2>&1; echo $? >> statuses; cat refusal >> refusals; done; " +
          as_rank +
          " >> refusals 2>&1; echo $? >> statuses; before=$(wc -l < run/metrics.jsonl); until [ "
          "$(wc -l < run/metrics.jsonl) -gt $before ]; do sleep 0.05; done; kill -TERM $launcher");
  EXPECT_EQ(ended.status, 130) << ended.output;
  EXPECT_EQ(folder_.read("statuses"), "2\n2\n2\n2\n");
  std::string owner = folder_.read("owner");
  owner.pop_back();
  const std::string refusal = "error: run: is in use by another run (process " + owner +
                              " on host " + host() +
                              "); wait for it or end it, or choose another --output\n";
  EXPECT_EQ(folder_.read("refusals"), refusal + refusal + refusal + refusal);
  EXPECT_EQ(record_of("run")["status"], "interrupted");
  EXPECT_EQ(run("checkpoint verify " + record_of("run")["checkpoint"].get<std::string>()).status,
            0);
}

// Ranks of a killed launcher may still write for a moment: the next one waits for them.
TEST_F(RunOwner, TheFolderIsFreeWhenTheLastRankIsGone) {
  run_and(endless("run") + "--ranks 2", until_steps("run") + "kill -9 $launcher");
  const launch::Ended next = run(short_run("run") + "--overwrite");
  EXPECT_EQ(next.status, 0) << next.output;
}

TEST_F(RunOwner, ARankOfAnotherLauncherOwnsItsFolderItself) {
  const launch::Ended ended =
      launch::shell("cd " + folder_.path() + "; export OMP_NUM_THREADS=1 HOME=$PWD; " +
                    "FULLSHARD_RANK=0 FULLSHARD_WORLD_SIZE=1 fullshard " + words("run", "3"));
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(record_of("run")["status"], "done");
  // It became the rank itself and launched none.
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs"));
  const launch::Ended half =
      launch::shell("cd " + folder_.path() + "; FULLSHARD_RANK=0 fullshard " + words("half", "3"));
  EXPECT_EQ(half.status, 2);
  EXPECT_THAT(half.output, HasSubstr("FULLSHARD_RANK is set but "));
}

// As `deepspeed --no_python fullshard train …` starts it: the flag stands before the command.
TEST_F(RunOwner, TheLocalRankOfOtherLaunchersIsUnderstood) {
  const std::string as_rank = "cd " + folder_.path() +
                              "; export OMP_NUM_THREADS=1 HOME=$PWD RANK=0 WORLD_SIZE=1 "
                              "LOCAL_RANK=0; fullshard ";
  const launch::Ended before = launch::shell(as_rank + "--local_rank=0 " + words("before", "3"));
  EXPECT_EQ(before.status, 0) << before.output;
  const launch::Ended after = launch::shell(as_rank + words("after", "3") + "--local-rank 0");
  EXPECT_EQ(after.status, 0) << after.output;
  const launch::Ended launching = run(words("third", "3") + "--ranks 2 --local_rank=1");
  EXPECT_EQ(launching.status, 2);
  EXPECT_EQ(launching.output,
            "error: --local-rank: is set by a launcher for one rank, but here 2 are started; leave "
            "it out\n");
}

TEST_F(RunOwner, ASummaryWithoutRoomIsAnExitStatus) {
  for (const std::string how : {"", "RANK=0 WORLD_SIZE=1 "}) {
    const std::string output = how.empty() ? "launched" : "rank";
    const launch::Ended ended = launch::shell(
        "cd " + folder_.path() + "; export OMP_NUM_THREADS=1 HOME=$PWD; " + how + "fullshard " +
        words(output, "3") + (how.empty() ? "--ranks 1" : "") + " > /dev/full");
    EXPECT_EQ(ended.status, 1) << ended.output;
    EXPECT_THAT(ended.output,
                HasSubstr("error: standard output: cannot be written: No space left on device; "));
    EXPECT_EQ(record_of(output)["status"], "done");
  }
}

TEST_F(RunOwner, OutputThatNobodyReadsEndsNoRun) {
  const launch::Ended ended = launch::shell(
      "cd " + folder_.path() + "; export OMP_NUM_THREADS=1 HOME=$PWD; (" + "fullshard " +
      words("run", "40") + "--ranks 2 2>&1; echo $? > status) | head -1; cat status");
  EXPECT_THAT(ended.output, MatchesRegex("[^\n]*\n0\n"));
  EXPECT_EQ(record_of("run")["status"], "done");
  EXPECT_EQ(last_step_of("run"), 40);
  EXPECT_THAT(folder_.read("run/logs/rank-0.log"), HasSubstr("report"));
  const launch::Ended closed =
      launch::shell("cd " + folder_.path() + "; export OMP_NUM_THREADS=1 HOME=$PWD; " +
                    "fullshard " + words("closed", "3") + "--ranks 2 <&- >&- 2>&-; echo $?");
  EXPECT_EQ(closed.output, "0\n");
  EXPECT_EQ(record_of("closed")["status"], "done");
}

}  // namespace
}  // namespace fullshard::cli
