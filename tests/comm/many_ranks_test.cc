// SPDX-License-Identifier: Apache-2.0
// 64 ranks as processes that only wait: they meet, leave, and hear of a death within the limits
// that hold for two. Slow, because each of them loads libtorch. bench/many_ranks.sh measures more.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <regex>
#include <string>
#include <vector>

namespace fullshard::comm {
namespace {

constexpr int kManyRanks = 64;
// Seconds. docs/launching.md promises two to ranks that have cores; here 32 share one, beside
// whatever else the machine does. So long they would not wait for the launcher, which is told to
// leave them alone for a minute, nor for a timeout: they heard of it themselves.
constexpr double kDeathIsKnown = 30;
constexpr double kRanksHaveMet = 60;  // from the first rank that asks, with 32 ranks to a core
// Until the launcher has ended too. Each process takes a third of a second of a core to unload
// libtorch; 30 s are what the launcher gives ranks that it has told to end (--grace).
constexpr double kRanksHaveLeft = 30;

struct ManyEnded {
  int status = 0;
  double ended_at = 0;  // by the clock of the ranks
  std::string output;
};

double clock_of_machine() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

ManyEnded play_many(const std::string& scene, const std::string& backend) {
  const std::string command = fmt::format(
      "OMP_NUM_THREADS=1 {}/fullshard launch --ranks {} --notice 60 -- {}/comm_world_rank '{}' {} "
      "2>&1",
      FULLSHARD_BINARIES, kManyRanks, FULLSHARD_TEST_PROGRAMS, scene, backend);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  ManyEnded ended;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    ended.output.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  ended.ended_at = clock_of_machine();
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

// When each rank said so.
std::vector<double> times_of(const std::string& output, const std::string& what) {
  // The launcher repeats the last lines of a rank that failed, indented.
  const std::regex line(
      fmt::format("(?:^|\\n)(?:\\[[0-9]+\\] )?rank [0-9]+ {} at ([0-9.]+)", what));
  std::vector<double> times;
  for (std::sregex_iterator it(output.begin(), output.end(), line), end; it != end; ++it) {
    times.push_back(std::stod((*it)[1]));
  }
  return times;
}

TEST(ManyRanksSlow, MeetAndLeave) {
  for (const std::string backend : {"shm", "gloo"}) {
    const ManyEnded ended = play_many("meet and leave", backend);
    ASSERT_EQ(ended.status, 0) << ended.output;
    const auto met = times_of(ended.output, "met"), left = times_of(ended.output, "leaves");
    ASSERT_EQ(met.size(), kManyRanks) << ended.output;
    ASSERT_EQ(left.size(), kManyRanks) << ended.output;
    EXPECT_LT(std::ranges::max(met) - std::ranges::min(met), kRanksHaveMet);
    EXPECT_LT(ended.ended_at - std::ranges::max(left), kRanksHaveLeft);
  }
}

TEST(ManyRanksSlow, HearOfADeathInTime) {
  for (const std::string backend : {"shm", "gloo"}) {
    const ManyEnded ended = play_many("the last rank dies", backend);
    EXPECT_EQ(ended.status, 137) << ended.output;
    const auto died = times_of(ended.output, "dies"), known = times_of(ended.output, "knows");
    ASSERT_EQ(died.size(), 1U) << ended.output;
    ASSERT_EQ(known.size(), kManyRanks - 1) << ended.output;
    const double heard = std::ranges::max(known) - died[0];
    EXPECT_LT(heard, kDeathIsKnown);
    RecordProperty(backend + " death known after s", fmt::format("{:.3f}", heard));
    EXPECT_THAT(ended.output, ::testing::HasSubstr("waits for rank 63, which died"));
  }
}

}  // namespace
}  // namespace fullshard::comm
