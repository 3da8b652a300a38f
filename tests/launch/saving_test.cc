// SPDX-License-Identifier: Apache-2.0
// Programs that save themselves after a signal: only their own deadline applies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "fullshard/launch/launch.h"
#include "shell.h"

namespace fullshard::launch {
namespace {

using namespace std::chrono_literals;

class Saving : public ::testing::Test {
 protected:
  // Two ranks with `trap` in place when `then` runs, in a separate folder.
  LaunchResult launch_saving(const std::string& trap, const std::string& then) {
    const std::string script =
        "cd " + folder_.path() + "; trap '" + trap +
        "' INT TERM; touch ready.$RANK; until [ -e ready.0 ] && [ -e ready.1 "
        "]; do sleep 0.02; done; " +
        then;
    return launch({.ranks = 2,
                   .command = {"sh", "-c", script},
                   .notice = 0ms,
                   .grace = 0ms,
                   .saves_itself = true});
  }

  TemporaryFolder folder_;
};

const std::string kForEver = "; while :; do sleep 0.05; done";

// It takes longer than any grace period: there is none.
TEST_F(Saving, HasNoDeadlineAfterAFirstSignal) {
  const LaunchResult result = launch_saving("sleep 0.3; echo saved > $RANK; exit 130",
                                            "[ $RANK = 1 ] && kill -TERM $PPID" + kForEver);
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.message, "interrupted by SIGTERM");
  EXPECT_EQ(folder_.read("0") + folder_.read("1"), "saved\nsaved\n");
}

TEST_F(Saving, ThatFailsIsAFailure) {
  const LaunchResult result = launch_saving("[ $RANK = 1 ] && exit 4; exec sleep 100",
                                            "[ $RANK = 1 ] && kill -TERM $PPID" + kForEver);
  EXPECT_EQ(result.status, 4);
  EXPECT_EQ(result.message, "rank 1: exited with status 4");
}

TEST_F(Saving, IsNotNeededByARunThatCameToItsEnd) {
  const LaunchResult result = launch_saving(
      "touch asked.$RANK",
      "[ $RANK = 1 ] && kill -TERM $PPID; until [ -e asked.$RANK ]; do sleep 0.02; done; true");
  EXPECT_EQ(result.status, 0);
}

// The signal comes after the last point at which a rank could save.
TEST_F(Saving, IsNotNeededByARunThatHeedsNoSignalAnyMore) {
  const LaunchResult result =
      launch_saving("", "[ $RANK = 1 ] && kill -TERM $PPID; sleep 0.3; exit 0");
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.failed_rank, std::nullopt);
}

// The others still save when the first one ends: there is no deadline.
TEST_F(Saving, AfterASignalToOneRankIsNoFailure) {
  ::testing::internal::CaptureStderr();
  const LaunchResult result =
      launch_saving("exit 4", "[ $RANK = 1 ] || sleep 0.3; echo saved > $RANK; exit 130");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(result.status, 130);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.failed_rank, std::nullopt);
  EXPECT_EQ(result.message, "interrupted by a signal to rank 1");
  EXPECT_EQ(folder_.read("0") + folder_.read("1"), "saved\nsaved\n");
}

TEST_F(Saving, EndsAtOnceWhenAskedTwice) {
  const LaunchResult result = launch_saving(
      "", "[ $RANK = 0 ] && kill -INT $PPID; while :; do sleep 0.2; kill -TERM $PPID; done");
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.message, "interrupted by SIGINT, and ended at once by a second signal");
}

// timeout(1) sends its signal to the process and to its group.
TEST_F(Saving, TakesTwoSignalsAtATimeForOne) {
  const LaunchResult result =
      launch_saving("exit 130", "[ $RANK = 0 ] && kill -TERM $PPID && kill -TERM $PPID" + kForEver);
  EXPECT_EQ(result.message, "interrupted by SIGTERM");
}

// A rank that does not know the signal yet has nothing to save, and the others wait for it.
TEST_F(Saving, IsNoMatterBeforeARankHeedsSignals) {
  const LaunchResult result =
      launch_saving("", "[ $RANK = 1 ] && trap - TERM && kill -TERM $PPID" + kForEver);
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.message, "interrupted by SIGTERM");
}

}  // namespace
}  // namespace fullshard::launch
