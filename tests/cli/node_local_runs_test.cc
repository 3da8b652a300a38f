// SPDX-License-Identifier: Apache-2.0
// `train` on two hosts that share no disk: here folders of one host, whose ranks are told that they
// run on separate hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/cli/long_runs.h"
#include "tests/files.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class NodeLocalRuns : public LongRuns {
 protected:
  NodeLocalRuns() {
    for (const char* disk : {"a", "b"}) {
      std::filesystem::create_directory(folder_ / disk);
      folder_.write(std::string(disk) + "/t.bin", folder_.read("t.bin"));
    }
  }

  // Node 0's output and exit status; node 1 writes its output to a file.
  launch::Ended run_both(int steps, const std::string& first, const std::string& second) const {
    return launch::shell(prelude() + node(1, "b", steps, second) + "> said.1 2>&1 & " +
                         node(0, "a", steps, first) + "2>&1; status=$?; wait; exit $status");
  }
  launch::Ended run_both(int steps, const std::string& flags) const {
    return run_both(steps, flags, flags);
  }
  std::string said_by_node_1() const { return folder_.read("said.1"); }

  std::vector<std::string> checkpoints_of(const std::string& disk) const {
    return testing::entries_of(folder_ / disk + "/run/checkpoints");
  }

 private:
  static std::string node(int rank, const std::string& disk, int steps, const std::string& flags) {
    return "(cd " + disk + "; NCCL_HOSTID=" + disk + " fullshard " +
           words("run", std::to_string(steps)) + "--ranks 1 --nnodes 2 --node-rank " +
           std::to_string(rank) + " --master-addr 127.0.0.1 --master-port " +
           std::to_string(20'000 + ::getpid() % 10'000) + " " + flags + ") ";
  }
};

TEST_F(NodeLocalRuns, OverwriteTheCheckpointsOfEveryHost) {
  const launch::Ended before = run_both(4, "--node-local --save-every 2");
  ASSERT_EQ(before.status, 0) << before.output << said_by_node_1();
  ASSERT_EQ(std::rename((folder_ / "b/run/checkpoints/step-000002").c_str(),
                        (folder_ / "b/run/checkpoints/mine").c_str()),
            0);
  folder_.write("b/run/checkpoints/notes.txt", "the user's own\n");
  const launch::Ended again = run_both(3, "--node-local --save-every 3 --overwrite");
  ASSERT_EQ(again.status, 0) << again.output << said_by_node_1();
  EXPECT_THAT(checkpoints_of("a"), UnorderedElementsAre("latest", "step-000003"));
  EXPECT_THAT(checkpoints_of("b"), UnorderedElementsAre("latest", "notes.txt", "step-000003"));
}

TEST_F(NodeLocalRuns, KeepTheCheckpointsOfEveryHostThatTheyGoOnFrom) {
  ASSERT_EQ(run_both(4, "--node-local --save-every 2").status, 0);
  const launch::Ended ended = run_both(6, "--node-local --save-every 2 --overwrite --resume auto");
  ASSERT_EQ(ended.status, 0) << ended.output << said_by_node_1();
  for (const char* disk : {"a", "b"}) {
    EXPECT_THAT(checkpoints_of(disk),
                UnorderedElementsAre("latest", "step-000002", "step-000004", "step-000006"));
  }
}

// As when one host failed after the other had already finished its part of a checkpoint.
TEST_F(NodeLocalRuns, GoOnFromTheNewestThatAllHostsHave) {
  ASSERT_EQ(run_both(4, "--node-local --save-every 2").status, 0);
  std::filesystem::remove_all(folder_ / "b/run/checkpoints/step-000004");
  const launch::Ended ended = run_both(6, "--node-local --save-every 2 --resume auto");
  ASSERT_EQ(ended.status, 0) << ended.output << said_by_node_1();
  EXPECT_THAT(
      ended.output,
      HasSubstr("warning: checkpoint skipped: step-000004: not all ranks have it (rank 1 "));
  EXPECT_THAT(ended.output, HasSubstr("resumed after step 2: run/checkpoints/step-000002"));
  for (const char* disk : {"a", "b"}) {
    EXPECT_THAT(checkpoints_of(disk),
                UnorderedElementsAre("latest", "step-000002", "step-000004", "step-000006"));
  }
}

TEST_F(NodeLocalRuns, OfNodesThatWereToldDifferentThingsEndBeforeTheFirstStep) {
  const launch::Ended ended = run_both(4, "--save-every 2 --node-local", "--save-every 2");
  EXPECT_EQ(ended.status, 2) << ended.output;
  const std::string message =
      "error: ranks disagree: rank 0 has --node-local true, rank 1 has --node-local false; start "
      "all of them with the same flags";
  EXPECT_THAT(ended.output, HasSubstr(message));
  EXPECT_THAT(said_by_node_1(), HasSubstr(message));
}

TEST_F(NodeLocalRuns, WhoseFlagIsForgottenEndBeforeTheFirstStep) {
  const launch::Ended ended = run_both(4, "--save-every 2");
  EXPECT_EQ(ended.status, 2) << ended.output;
  const std::string message = "error: run/checkpoints: rank 0 writes there, and rank 1 on host ";
  EXPECT_THAT(ended.output, HasSubstr(message));
  EXPECT_THAT(ended.output, HasSubstr("or on every host's own (--node-local, "));
  EXPECT_THAT(said_by_node_1(), HasSubstr(message));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a/run/metrics.jsonl"));
  // Nothing is to be saved.
  const launch::Ended without = run_both(4, "");
  EXPECT_EQ(without.status, 0) << without.output << said_by_node_1();
}

}  // namespace
}  // namespace fullshard::cli
