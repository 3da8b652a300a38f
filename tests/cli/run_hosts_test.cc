// SPDX-License-Identifier: Apache-2.0
// `train` on two hosts of two ranks, which are network namespaces, while the link between them is
// cut or one of them is killed: the lost rank is named, and the run continues from its last
// checkpoint.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <string>

#include "tests/cli/long_runs.h"
#include "tests/network_namespaces.h"

namespace fullshard::cli {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Slow: a host must be silent for some seconds.
class RunOnTwoHostsSlow : public LongRuns {
 protected:
  static constexpr int kSteps = 40;

  void SetUp() override {
    if (!spaces_.problem().empty()) GTEST_SKIP() << spaces_.problem();
  }

  // Starts both nodes, does `meanwhile`, and waits for their ends. There $first and $second are
  // the launchers, and steps waits for the 15th step; `node N` is the command of a node, `ranks
  // HOST` its ranks, and `restarted N LAUNCHER` waits until they have been started again.
  void run_both(const std::string& flags, const std::string& meanwhile) const {
    const launch::Ended ended = launch::shell(
        prelude() +
        "node() { FULLSHARD_JOB_SECRET=shared exec ip netns exec $([ $1 = 0 ] && echo " +
        spaces_.first() + " || echo " + spaces_.second() + ") fullshard " +
        words("run", std::to_string(kSteps)) +
        "--save-every 10 --ranks 2 --nnodes 2 --node-rank $1 --master-addr " +
        testing::TwoNamespaces::kFirstAddress + " --master-port 29531 " + flags +
        " > said.$1 2>&1; }; node 0 & first=$!; node 1 & second=$!; "
        "lives() { kill -0 $1 2> /dev/null; }; "
        "ranks() { for each in $(ip netns pids $1); do case \"$(tr '\\0' ' ' < "
        "/proc/$each/cmdline)\" in *fullshard-core*) echo $each;; esac; done; }; "
        "restarted() { until grep -q 'launch: restart 1 of 1' said.$1 || ! lives $2; do sleep "
        "0.05; done; }; "
        "steps() { until [ \"$(wc -l < run/metrics.jsonl)\" -ge 15 ] || ! lives $first; do sleep "
        "0.05; done; } 2> /dev/null; " +
        meanwhile + "; wait $first; echo $? > ended.0; wait $second; echo $? > ended.1");
    ASSERT_EQ(ended.output, "") << "of the shell itself";
  }
  std::string said(int node) const { return folder_.read("said." + std::to_string(node)); }
  std::string status_of(int node) const {
    const std::string status = folder_.read("ended." + std::to_string(node));
    return status.substr(0, status.find('\n'));
  }

  // Which rank this one waited for in vain, by its own log, and why: "rank 2 cannot be reached".
  std::string named_by(int rank) const {
    const std::string log = folder_.read("run/logs/rank-" + std::to_string(rank) + ".log");
    std::smatch found;
    const std::regex words("(^|\n)error: rank " + std::to_string(rank) +
                           ": [^\n;]* waits for (rank [0-3]), which ([a-z ]+); ");
    return std::regex_search(log, found, words) ? found[2].str() + " " + found[3].str()
                                                : "nobody:\n" + log;
  }

  // Loss, norm and learning rate of every step, with all digits.
  std::string curve() const {
    std::istringstream lines(folder_.read("run/metrics.jsonl"));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      const auto step = nlohmann::json::parse(line);
      for (const char* key : {"step", "loss", "grad_norm", "lr"}) text += step[key].dump() + " ";
      text += "\n";
    }
    return text;
  }
  // The metrics of an undisturbed run; the first test that needs them makes it.
  const std::string& undisturbed_curve() const {
    static const std::string curve_of_all = [this] {
      run_both("", ":");
      EXPECT_EQ(status_of(0) + status_of(1), "00") << said(0) << said(1);
      const std::string text = curve();
      std::filesystem::remove_all(folder_ / "run");
      return text;
    }();
    return curve_of_all;
  }

  void expect_the_whole_run() const {
    EXPECT_EQ(status_of(0), "0") << said(0);
    EXPECT_EQ(status_of(1), "0") << said(1);
    EXPECT_EQ(record_of("run")["status"], "done");
    EXPECT_EQ(curve(), undisturbed_) << "not the bits of a run without a loss";
  }
  void expect_resumed() const {
    std::smatch found;
    const std::string text = said(0);
    ASSERT_TRUE(std::regex_search(text, found, std::regex("resumed after step ([1-3]0): ")))
        << text;
  }

  const testing::TwoNamespaces spaces_;
  const std::string undisturbed_ = spaces_.problem().empty() ? undisturbed_curve() : "";
};

// Both sides of the cut name a rank of the other; calls have ten minutes.
TEST_F(RunOnTwoHostsSlow, ACutLinkIsNamedByEveryRankAndTheSameCommandResumes) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  run_both("", "steps; " + spaces_.cut_line());
  EXPECT_LT(Clock::now() - begin, std::chrono::minutes(2));
  EXPECT_EQ(status_of(0), "1") << said(0);
  EXPECT_EQ(status_of(1), "1") << said(1);
  const std::string beyond = named_by(0);
  EXPECT_THAT(beyond, AnyOf("rank 2 cannot be reached", "rank 3 cannot be reached"));
  EXPECT_EQ(named_by(1), beyond);
  EXPECT_EQ(named_by(2), "rank 0 cannot be reached");
  EXPECT_EQ(named_by(3), "rank 0 cannot be reached");
  for (int node = 0; node < 2; ++node) {
    EXPECT_THAT(said(node), HasSubstr("the network to its host is cut or too slow\n"));
  }
  EXPECT_EQ(record_of("run")["status"], "failed");
  EXPECT_THAT(record_of("run")["problem"].get<std::string>(), HasSubstr(beyond.substr(0, 6)));
  testing::shell(spaces_.mend_line());
  run_both("--resume auto", ":");
  expect_resumed();
  expect_the_whole_run();
}

TEST_F(RunOnTwoHostsSlow, LaunchersStartTheRanksAgainWhichWaitUntilTheLinkIsBack) {
  run_both("--max-restarts 1", "steps; " + spaces_.cut_line() +
                                   "; restarted 0 $first; restarted 1 $second; " +
                                   spaces_.mend_line());
  expect_resumed();
  expect_the_whole_run();
}

TEST_F(RunOnTwoHostsSlow, AShortOutageIsWaitedFor) {
  run_both("", "steps; " + spaces_.cut_line() + "; sleep 2; " + spaces_.mend_line());
  EXPECT_EQ(said(0).find("error"), std::string::npos) << said(0);
  expect_the_whole_run();
}

// All processes of the host at once, so that none can report. It comes back with the same command,
// and the launcher of the other host has restarted its ranks meanwhile.
TEST_F(RunOnTwoHostsSlow, AKilledHostIsNamedAndMayJoinTheRestart) {
  run_both("--max-restarts 1 --resume auto",
           "steps; kill -9 $(ip netns pids " + spaces_.second() +
               "); wait $second 2> /dev/null; restarted 0 $first; node 1 & second=$!");
  EXPECT_THAT(named_by(0), AnyOf("rank 2 died", "rank 3 died"));
  EXPECT_EQ(named_by(1), named_by(0));
  expect_resumed();
  expect_the_whole_run();
}

// Their launcher has no rank to wait for, so that new ranks come while those of the other host, and
// the store with them, have not ended yet.
TEST_F(RunOnTwoHostsSlow, RanksOfAHostThatAllDieAreStartedAgainAndMeetTheOthersOfThatStart) {
  run_both("--max-restarts 1", "steps; kill -9 $(ranks " + spaces_.second() + ")");
  EXPECT_THAT(named_by(0), AnyOf("rank 2 died", "rank 3 died"));
  EXPECT_EQ(named_by(1), named_by(0));
  expect_resumed();
  expect_the_whole_run();
}

// The same for the host where the ranks meet, and where the launchers do.
TEST_F(RunOnTwoHostsSlow, TheKilledHostOfTheStoreMayJoinTheRestartToo) {
  run_both("--max-restarts 1",
           "steps; kill -9 $(ip netns pids " + spaces_.first() +
               "); wait $first 2> /dev/null; restarted 1 $second; node 0 & first=$!");
  EXPECT_EQ(named_by(2), "rank 0 died");
  EXPECT_EQ(named_by(3), "rank 0 died");
  expect_resumed();
  expect_the_whole_run();
}

TEST_F(RunOnTwoHostsSlow, TheKilledHostOfTheStoreIsNamed) {
  run_both("", "steps; kill -9 $(ip netns pids " + spaces_.first() + "); wait $first 2> /dev/null");
  EXPECT_EQ(status_of(0), "137");
  EXPECT_EQ(status_of(1), "1") << said(1);
  EXPECT_EQ(named_by(2), "rank 0 died");
  EXPECT_EQ(named_by(3), "rank 0 died");
  run_both("--resume auto", ":");
  expect_resumed();
  expect_the_whole_run();
}

}  // namespace
}  // namespace fullshard::cli
