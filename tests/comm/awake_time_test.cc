// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/awake_time.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "tests/network_namespaces.h"

namespace fullshard::comm {
namespace {

using namespace std::chrono_literals;

TEST(AwakeTime, LeavesOutWhatLiesBetweenTwoLooksThatAreFarApart) {
  const AwakeTime::Clock::time_point start{};
  AwakeTime time(start);
  EXPECT_EQ(time.passed(start + 100ms), 100ms);
  EXPECT_EQ(time.passed(start + 300ms), 300ms);
  EXPECT_EQ(time.passed(start + 1h), 300ms + AwakeTime::kMostBetweenLooks);
  EXPECT_EQ(time.passed(start + 1h + 1us), 300ms + AwakeTime::kMostBetweenLooks);
  EXPECT_EQ(time.passed(start + 1h + 50ms), 350ms + AwakeTime::kMostBetweenLooks);
}

// Both ranks are stopped for longer than rank 0 may wait, and rank 1 comes when rank 0 has looked.
std::string end_of_freeze(const std::string& backend) {
  const std::string program = FULLSHARD_TEST_PROGRAMS "/comm_world_rank";
  const std::string port = std::to_string(20'000 + ::getpid() % 10'000);
  return testing::shell(
             "cd $(mktemp -d) && export OMP_NUM_THREADS=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
             "MASTER_PORT=" +
             port + "; rank() { RANK=$1 exec " + program + " freeze " + backend +
             "; }; rank 0 & first=$!; rank 1 & second=$!; until [ -e waits ] || ! kill -0 $first; "
             "do sleep 0.02; done; sleep 0.3; kill -STOP $first $second; sleep 6; kill -CONT "
             "$first $second; sleep 0.5; touch come; wait $first; echo $?; wait $second; echo $?; "
             "rm -r $PWD")
      .output;
}

// Slow: the freeze lasts for longer than a time limit.
TEST(AwakeTimeSlow, IsWhatRanksOfAFrozenContainerCount) {
  EXPECT_EQ(end_of_freeze("shm"), "0\n0\n");
  EXPECT_EQ(end_of_freeze("gloo"), "0\n0\n");
}

}  // namespace
}  // namespace fullshard::comm
