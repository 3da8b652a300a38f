// SPDX-License-Identifier: Apache-2.0
// How `train` ends, whatever ends it, and how the next command handles that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "tests/cli/long_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class RunLife : public LongRuns {};

// With no grace period: a save has only its own deadline.
TEST_F(RunLife, ASignalEndsTheStepAndSavesIt) {
  for (const std::string name : {"INT", "TERM", "HUP"}) {
    const std::string output = "run-" + name;
    const launch::Ended ended =
        run_and(endless(output) + "--save-every 1000000 --ranks 2 --grace 0",
                until_steps(output) + "kill -" + name + " $launcher");
    EXPECT_EQ(ended.status, 130) << ended.output;
    const auto record = record_of(output);
    EXPECT_EQ(record["status"], "interrupted");
    EXPECT_EQ(record["problem"], "SIG" + name);
    const std::string checkpoint = record["checkpoint"];
    EXPECT_THAT(
        ended.output,
        HasSubstr("note: SIG" + name +
                  ": the step is being finished and a checkpoint saved; a second signal ends "
                  "the run at once\n"));
    EXPECT_THAT(ended.output, HasSubstr("checkpoint  " + checkpoint + "\n"));
    EXPECT_EQ(run("checkpoint verify " + checkpoint).status, 0);
    // The last step of the metrics is the one that was saved.
    EXPECT_EQ(checkpoint, output + "/checkpoints/" + step_name(last_step_of(output)));
  }
}

TEST_F(RunLife, ASignalWithoutCheckpointsSaysThatNoneIsSaved) {
  const launch::Ended ended =
      run_and(endless("run") + "--ranks 1", until_steps("run") + "kill -INT $launcher");
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(ended.output, HasSubstr("note: SIGINT: the step is being finished, and no checkpoint "
                                      "saved, because --save-every is not given; a second signal "
                                      "ends the run at once\n"));
  EXPECT_EQ(record_of("run")["problem"], "SIGINT");
}

// Stopped ranks cannot finish their step.
TEST_F(RunLife, ASecondSignalEndsAtOnceAndIsToldOf) {
  const launch::Ended ended = run_and(endless("run") + "--save-every 1 --ranks 2",
                                      until_checkpoint("run") +
                                          "kill -STOP $(ranks); until grep -q 'at once' said || "
                                          "! kill -TERM $launcher; do sleep 0.2; done");
  EXPECT_EQ(ended.status, 130);
  const auto record = record_of("run");
  EXPECT_EQ(record["status"], "interrupted");
  EXPECT_EQ(record["problem"], "interrupted by SIGTERM, and ended at once by a second signal");
  EXPECT_THAT(ended.output,
              HasSubstr("interrupted by SIGTERM, and ended at once by a second signal; "
                        "the last checkpoint is run/checkpoints/step-"));
}

TEST_F(RunLife, ARankThatIsKilledIsNamedInTheRecord) {
  const launch::Ended ended =
      run_and(endless("run") + "--ranks 1", until_steps("run") + "kill -9 $(ranks)");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(record_of("run")["status"], "failed");
  EXPECT_EQ(record_of("run")["problem"], "rank 0: killed by signal 9 (Killed)");
}

TEST_F(RunLife, ARunThatWasKilledIsToldByTheNextCommand) {
  for (const std::string command : {"report run", "doctor --report run", "train"}) {
    std::filesystem::remove_all(folder_ / "run");
    run_and(endless("run") + "--ranks 1", until_steps("run") + kill_all());
    EXPECT_EQ(record_of("run")["status"], "running");
    const launch::Ended next = run(command == "train" ? short_run("run") : command);
    EXPECT_EQ(next.status, command == "train" ? 2 : 0) << next.output;
    EXPECT_EQ(record_of("run")["status"], "failed") << command;
    EXPECT_THAT(record_of("run")["problem"].get<std::string>(),
                HasSubstr(" ended unexpectedly: killed, out of memory, or its machine stopped"));
  }
}

TEST_F(RunLife, ResumeAutoBeginsAnewWhereTheDeathCameBeforeACheckpoint) {
  run_and(endless("run") + "--ranks 1 --save-every 1000000", until_steps("run") + kill_all());
  const launch::Ended again = run(short_run("run") + "--save-every 2 --resume auto");
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output,
              HasSubstr("note: no checkpoint to resume; starting from the beginning\n"));
  EXPECT_EQ(record_of("run")["status"], "done");
  EXPECT_EQ(record_of("run")["checkpoint"], "run/checkpoints/step-000003");
  EXPECT_EQ(last_step_of("run"), 3);
}

// The second start is interrupted after steps of its own.
TEST_F(RunLife, RestartsBeginAnewWhereTheDeathCameBeforeACheckpoint) {
  for (const std::string saves : {"", "--save-every 1000000 "}) {
    const std::string output = saves.empty() ? "plain" : "saving";
    const launch::Ended ended =
        run_and(endless(output) + saves + "--ranks 2 --max-restarts 1 --notice 0",
                until_steps(output) +
                    "first=$(ranks); kill -9 ${first##* }; until [ \"$(ranks)\" ] && "
                    "[ \"$(ranks)\" != \"$first\" ] && grep -q 'restart 1 of 1' said; do "
                    "sleep 0.05; done; : > marker; until [ " +
                    output + "/metrics.jsonl -nt marker ] && [ -s " + output +
                    "/metrics.jsonl ]; do sleep 0.05; done; kill -TERM $launcher");
    EXPECT_EQ(ended.status, 130) << ended.output;
    EXPECT_THAT(ended.output, Not(HasSubstr("holds a run already")));
    EXPECT_EQ(record_of(output)["status"], "interrupted");
  }
}

TEST_F(RunLife, ARefusedStartLeavesTheLogsOfTheFinishedRun) {
  ASSERT_EQ(run(short_run("run")).status, 0);
  const std::string log = folder_.read("run/logs/rank-0.log");
  EXPECT_THAT(log, HasSubstr("llama"));
  for (const std::string how : {"", "--resume auto", "--max-restarts 3"}) {
    const launch::Ended refused = run(short_run("run") + how);
    EXPECT_EQ(refused.status, 2) << refused.output;
    EXPECT_THAT(refused.output, HasSubstr("error: run: holds a run already"));
    EXPECT_THAT(refused.output, Not(HasSubstr("restart")));
    EXPECT_EQ(folder_.read("run/logs/rank-0.log"), log);
    EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/rank-0.log.old"));
  }
  EXPECT_EQ(record_of("run")["status"], "done");
}

// WORLD_SIZE implies several ranks; a single rank would train something else.
TEST_F(RunLife, ANumberOfRanksWithoutARankIsRefused) {
  const std::string told =
      prelude() + "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 ";
  const launch::Ended ended = launch::shell(told + "fullshard " + words("alone", "3"));
  EXPECT_EQ(ended.status, 2);
  EXPECT_THAT(ended.output, HasSubstr("error: environment: WORLD_SIZE is set but RANK is not; set "
                                      "both or neither\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "alone/run.json"));
  EXPECT_EQ(launch::shell(told + "fullshard " + short_run("run")).status, 0);
}

TEST_F(RunLife, ASignalToOneRankEndsTheRunAsToTheLauncher) {
  const launch::Ended ended = run_and(endless("run") + "--save-every 1000000 --ranks 2 --grace 0",
                                      until_steps("run") + "all=$(ranks); kill -TERM ${all##* }");
  EXPECT_EQ(ended.status, 130) << ended.output;
  EXPECT_EQ(record_of("run")["status"], "interrupted");
  EXPECT_THAT(ended.output, Not(HasSubstr("error: ")));
}

// What is replaced must not be taken for a checkpoint of the new run.
TEST_F(RunLife, OverwritingLeavesNoCheckpointsOfTheRunBefore) {
  ASSERT_EQ(run(short_run("run") + "--save-every 1").status, 0);
  ASSERT_EQ(run(short_run("run") + "--overwrite").status, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/step-000003"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/checkpoints/latest"));
}

// Both are stopped before they can have met; then one of them is killed.
TEST_F(RunLife, ARankThatIsKilledBeforeTheRanksHaveMetEndsTheOthersAtOnce) {
  const launch::Ended ended =
      run_and(endless("run") + "--ranks 2 --notice 100000 --init-timeout 100000",
              "until [ $(ranks | wc -w) = 2 ]; do :; done; kill -STOP $(ranks); "
              "all=$(ranks); kill -9 ${all##* }; kill -CONT ${all%% *}");
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.output, HasSubstr("error: rank 1: killed by signal 9 (Killed)\n"));
}

}  // namespace
}  // namespace fullshard::cli
