// SPDX-License-Identifier: Apache-2.0
// Ranks that were told different things about one another, as when each is started by hand.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <sstream>
#include <string>
#include <vector>

#include "expect_error.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

using ::testing::Each;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

// Below those that the system hands out, and another in each process and test.
int new_port() {
  static int number = 0;
  return 20'000 + (::getpid() * 7 + ++number) % 10'000;
}

// They would wait for ten minutes for a rank that does not come.
std::future<std::string> join(int rank, int size, int port) {
  return std::async(std::launch::async, [=] {
    return error_of([&] {
      World::from_environment({.rank = rank,
                               .size = size,
                               .master_address = "127.0.0.1",
                               .master_port = port,
                               .timeouts = {.init = std::chrono::minutes(10)}});
    });
  });
}

TEST(Meeting, OfRanksThatWereToldOfMoreOthersFailsForAll) {
  const int port = new_port();
  auto first = join(0, 2, port), second = join(1, 3, port);
  const std::string expected =
      "world: size is 3 on rank 1, but 2 on rank 0; give all ranks the same WORLD_SIZE";
  EXPECT_EQ(first.get(), expected);
  EXPECT_EQ(second.get(), expected);
}

// Nobody else will ever come.
TEST(Meeting, OfRanksThatWereToldOfFewerOthersFailsForAll) {
  const int port = new_port();
  auto first = join(0, 3, port), second = join(1, 2, port);
  const std::string expected =
      "world: size is 2 on rank 1, but 3 on rank 0; give all ranks the same WORLD_SIZE";
  EXPECT_EQ(first.get(), expected);
  EXPECT_EQ(second.get(), expected);
}

// Rank 1 comes last, so that rank 0 still waits.
TEST(Meeting, OfARankBeyondThemFailsForAll) {
  const int port = new_port();
  auto first = join(0, 2, port), beyond = join(2, 3, port);
  const std::string expected =
      "world: size is 3 on rank 2, but 2 on rank 0; give all ranks the same WORLD_SIZE";
  EXPECT_EQ(beyond.get(), expected);
  EXPECT_EQ(first.get(), expected);
}

// The lines on both streams of ranks that are started with these numbers.
std::vector<std::string> lines_of(const std::vector<int>& ranks, int size) {
  std::string command =
      fmt::format("export OMP_NUM_THREADS=1 WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={}; (",
                  size, new_port());
  for (const int rank : ranks) {
    command +=
        fmt::format("RANK={} {}/comm_world_rank operations auto & ", rank, FULLSHARD_TEST_PROGRAMS);
  }
  std::FILE* pipe = ::popen((command + "wait) 2>&1").c_str(), "r");
  std::string output;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) output.append(buffer, got);
  ::pclose(pipe);
  std::istringstream stream(output);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Meeting, OfTwoProcessesWithOneRankNamesBoth) {
  const std::vector<std::string> lines = lines_of({0, 1, 1}, 3);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines, Each(MatchesRegex("error: world: process [0-9]+ on .* came as rank 1, and so "
                                       "did process [0-9]+ on .*; give each process its own RANK, "
                                       "and start all ranks again")));
  EXPECT_THAT(lines, Each(lines.front()));
}

}  // namespace
}  // namespace fullshard::comm
