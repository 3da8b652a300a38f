// SPDX-License-Identifier: Apache-2.0
// `train` on several nodes that are started by hand: here all of them are this host.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <tuple>

#include "tests/cli/long_runs.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;

class RunNodes : public LongRuns {
 protected:
  // Node 1 of two, next to node 0; it writes its output to a file.
  launch::Ended run_both(const std::string& flags, const std::string& of_node_1 = "") const {
    return run(node(1, flags + " " + of_node_1) + "> said.1 2>&1 & fullshard " + node(0, flags) +
               "; status=$?; wait; exit $status");
  }
  static std::string node(int rank, const std::string& flags, const std::string& steps = "3") {
    return words("run", steps) + "--ranks 1 --nnodes 2 --node-rank " + std::to_string(rank) +
           " --master-addr 127.0.0.1 --master-port " + std::to_string(port()) + " " + flags + " ";
  }
  static int port() { return 20'000 + ::getpid() % 10'000; }
};

// Node 0 checks the folder; node 1 waits in vain for a rank that never starts.
TEST_F(RunNodes, ARefusedStartLeavesTheLogsOfTheFinishedRunOnEveryNode) {
  ASSERT_EQ(run(short_run("run")).status, 0);
  folder_.write("run/logs/rank-1.log", "the finished run\n");
  const std::string first = folder_.read("run/logs/rank-0.log");
  const launch::Ended refused = run_both("--init-timeout 1 --notice 0");
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("error: run: holds a run already"));
  EXPECT_EQ(folder_.read("run/logs/rank-0.log"), first);
  EXPECT_EQ(folder_.read("run/logs/rank-1.log"), "the finished run\n");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/rank-1.log.old"));
  EXPECT_THAT(folder_.read("run/logs/rank-1.log.new"), HasSubstr("error: world: nobody answers"));
}

TEST_F(RunNodes, AStartThatIsAcceptedReplacesTheLogsOnEveryNode) {
  ASSERT_EQ(run(short_run("run")).status, 0);
  folder_.write("run/logs/rank-1.log", "the finished run\n");
  const launch::Ended ended = run_both("--overwrite");
  EXPECT_EQ(ended.status, 0) << ended.output << folder_.read("said.1");
  EXPECT_EQ(folder_.read("run/logs/rank-1.log.old"), "the finished run\n");
  EXPECT_EQ(folder_.read("run/logs/rank-1.log").find("the finished run"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "run/logs/rank-1.log"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/rank-1.log.new"));
}

// No other check would show it: each rank updates its own shard.
TEST_F(RunNodes, ThatWereToldDifferentThingsSayWhichAndTouchNothing) {
  ASSERT_EQ(run(short_run("run")).status, 0);
  const std::string metrics = folder_.read("run/metrics.jsonl");
  for (const auto& [flags, first, second] :
       {std::tuple{"--optimizer SGD", "--optimizer \"AdamW\"", "--optimizer \"SGD\""},
        {"--seed 7", "--seed 42", "--seed 7"},
        {"--save-every 2", "--save-every 0", "--save-every 2"},
        {"--log-every 2", "--log-every 1", "--log-every 2"},
        {"--max-samples 8", "--max-samples 0", "--max-samples 8"},
        {"--resume auto", "--resume none", "--resume auto"}}) {
    const launch::Ended ended = run_both("--overwrite", flags);
    EXPECT_EQ(ended.status, 2) << ended.output;
    const std::string message = std::string("error: ranks disagree: rank 0 has ") + first +
                                ", rank 1 has " + second + "; start all of them with the same";
    EXPECT_THAT(ended.output, HasSubstr(message));
    EXPECT_THAT(folder_.read("said.1"), HasSubstr(message));
    EXPECT_EQ(folder_.read("run/metrics.jsonl"), metrics);
  }
}

// The launcher of node 1 has no other rank to wait for: a new one comes at once, while rank 0 of
// the first start, which serves the store, has not ended yet: here it is stopped until the new one
// is connected to it. One restart on each node is enough. The nodes count as hosts of their own,
// since those of one host need no store once they have met.
TEST_F(RunNodes, WhoseOnlyRankDiesGoOnWithTheOthersOfTheirRestart) {
  const std::string flags = "--save-every 2 --keep 2 --notice 5 --max-restarts 1";
  const std::string endless = "100000000";
  const launch::Ended ended = run_and(
      node(1, flags, endless),
      "NCCL_HOSTID=another fullshard " + node(0, flags, endless) + "> said.0 2>&1 & other=$!; " +
          until_checkpoint("run") +
          "lives() { kill -0 $other && kill -0 $launcher; }; "
          "comes() { for each in $(ls -l /proc/$1/fd | sed -n "
          "'s/.*socket:\\[\\([0-9]*\\)\\]/\\1/p'); do "
          "grep -q \":" +
          fmt::format("{:04X}", port()) +
          " 01 .* $each \" /proc/net/tcp && return; done; return 1; }; "
          "first=$(launcher=$other; ranks); kill -STOP $first; kill -9 $(ranks); "
          "until grep -q 'restart 1 of 1' said || ! lives; do sleep 0.02; done; "
          "until comes $(ranks) || ! lives; do sleep 0.02; done 2> /dev/null; kill -CONT $first; "
          "until grep -q 'resumed after step' said.0 || ! lives; do sleep 0.05; done; "
          "kill $other; wait $other; echo $? > status.0");
  EXPECT_EQ(ended.status, 130) << ended.output;
  EXPECT_EQ(folder_.read("status.0"), "130\n") << folder_.read("said.0");
  EXPECT_THAT(ended.output, HasSubstr("launch: restart 1 of 1\n"));
  EXPECT_THAT(folder_.read("said.0"), HasSubstr("launch: restart 1 of 1\n"));
  EXPECT_THAT(folder_.read("said.0"), HasSubstr("resumed after step "));
}

// All of a host at once, as when it loses its power; it says nothing of --resume. Here only its
// launcher is killed, whose keeper kills the rest.
TEST_F(RunNodes, ANodeZeroThatWasLostComesBackWithTheSameCommand) {
  const std::string flags = "--save-every 2 --keep 2 --max-restarts 1 --overwrite";
  const std::string endless = "100000000";
  const std::string node_0 = "fullshard " + node(0, flags, endless) + "> said.0 2>&1 & other=$!; ";
  const launch::Ended ended = run_and(
      node(1, flags, endless),
      node_0 + until_checkpoint("run") +
          "lives() { kill -0 $other && kill -0 $launcher; }; kill -9 $other; wait $other; until "
          "grep -q 'restart 1 of 1' said || ! kill -0 $launcher; do sleep 0.05; done; " +
          node_0 +
          "until grep -q 'resumed after step' said.0 || ! lives; do sleep 0.05; done; kill $other; "
          "wait $other; echo $? > status.0");
  EXPECT_EQ(ended.status, 130) << ended.output;
  EXPECT_EQ(folder_.read("status.0"), "130\n") << folder_.read("said.0");
  EXPECT_THAT(folder_.read("said.0"), HasSubstr("resumed after step "));
}

// It could only be told at once before: now it is when the ranks have met, and still ends the job.
TEST_F(RunNodes, ARefusedStartWithRestartsEndsOnEveryNodeAndLeavesTheLogs) {
  ASSERT_EQ(run(short_run("run")).status, 0);
  const std::string first = folder_.read("run/logs/rank-0.log");
  const launch::Ended refused = run_both("--max-restarts 3");
  EXPECT_EQ(refused.status, 2) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("error: rank 0: run: holds a run already"));
  EXPECT_EQ(refused.output.find("restart"), std::string::npos) << refused.output;
  EXPECT_EQ(folder_.read("said.1").find("restart"), std::string::npos) << folder_.read("said.1");
  EXPECT_EQ(folder_.read("run/logs/rank-0.log"), first);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "run/logs/rank-0.log.old"));
}

}  // namespace
}  // namespace fullshard::cli
