// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/world.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdio>

#include "expect_error.h"

namespace fullshard::comm {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class WorldOver : public ::testing::TestWithParam<const char*> {
 protected:
  ThreadRanks ranks(int count) const { return {.ranks = count, .backend = GetParam()}; }
};

TEST_P(WorldOver, KnowsItsRanksAndHost) {
  run_ranks(ranks(3), [](const World& world) {
    EXPECT_EQ(world.backend(), GetParam());
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.local_size(), 3);
    EXPECT_EQ(world.num_hosts(), 1);
  });
}

TEST_P(WorldOver, SplitsByColourAndKeepsTheOrder) {
  run_ranks(ranks(4), [](const World& world) {
    const Communicator odd_even = world.split(world.rank() % 2, "parity");
    EXPECT_EQ(odd_even.size(), 2);
    EXPECT_EQ(odd_even.rank(), world.rank() / 2);
    const at::Tensor sum = at::full({1}, world.rank(), at::kLong);
    odd_even.all_reduce(sum).wait();
    EXPECT_EQ(sum.item<int64_t>(), world.rank() % 2 == 0 ? 2 : 4);
  });
}

TEST_P(WorldOver, RefusesUnequalGroups) {
  EXPECT_EQ(error_of([&] {
              run_ranks(ranks(3), [](const World& world) { world.split(world.rank() / 2, "odd"); });
            }),
            "split into 'odd': groups of 2 and 1 ranks; all groups must have the same size");
}

TEST_P(WorldOver, ThrowsTheErrorThatCameFirst) {
  for (const int failing : {0, 1, 2}) {
    EXPECT_EQ(error_of([&] {
                run_ranks(ranks(3), [&](const World& world) {
                  world.communicator().barrier();
                  check(world.rank() != failing, "rank {} has no more memory", failing);
                  world.communicator().barrier();
                });
              }),
              fmt::format("rank {} has no more memory", failing));
  }
}

TEST_P(WorldOver, OneRankWorksToo) {
  run_ranks(ranks(1), [](const World& world) {
    const at::Tensor sum = at::ones({2});
    world.communicator().all_reduce(sum).wait();
    EXPECT_TRUE(at::equal(sum, at::ones({2})));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, WorldOver, ::testing::Values("shm", "gloo"));

TEST(World, RefusesAnUnknownBackend) {
  EXPECT_EQ(error_of([] { run_ranks({.backend = "smoke"}, [](const World&) {}); }),
            "run_ranks: backend is 'smoke', expected shm or gloo");
  EXPECT_EQ(error_of([] { World::from_environment({.backend = "smoke"}); }),
            "world: backend is 'smoke', expected auto, shm, gloo or nccl");
}

TEST(World, KnowsHowManyRanksEveryHostHolds) {
  const auto on = [](std::vector<int> hosts, int expected) {
    const int ranks = static_cast<int>(hosts.size());
    run_ranks({.ranks = ranks, .backend = "gloo", .hosts = std::move(hosts)},
              [&](const World& world) { EXPECT_EQ(world.ranks_per_host(), expected); });
  };
  on({0, 1, 0, 1}, 2);
  on({0, 1, 0}, 0);
  EXPECT_EQ(World::fake(16, 0, 8).ranks_per_host(), 8);
}

TEST(World, OfThreadsTakesTheHostsThatItIsTold) {
  EXPECT_EQ(error_of([] {
              run_ranks({.ranks = 2, .hosts = {0, 1}}, [](const World&) {});
            }),
            "run_ranks: shm ranks share one host, but hosts are given; use gloo");
  EXPECT_EQ(error_of([] {
              run_ranks({.ranks = 2, .backend = "gloo", .hosts = {0}}, [](const World&) {});
            }),
            "run_ranks: hosts of 1 ranks, but there are 2");
}

TEST(World, RefusesGroupsThatLeaveARankOut) {
  EXPECT_EQ(error_of([] {
              World::fake(4).split({{0, 1}, {2, 2}}, "pairs");
            }),
            "split into 'pairs': the groups hold the ranks [0, 1, 2, 2], expected each of the 4 "
            "ranks once");
}

// The rest starts processes, through the launcher.
struct Ended {
  int status = 0;
  double seconds = 0;
  std::string output;  // both streams
};

Ended play(const std::string& scene, const std::string& backend, int ranks = 2) {
  const std::string command =
      fmt::format("{}/fullshard launch --ranks {} --notice 60 -- {}/comm_world_rank '{}' {} 2>&1",
                  FULLSHARD_BINARIES, ranks, FULLSHARD_TEST_PROGRAMS, scene, backend);
  const auto start = std::chrono::steady_clock::now();
  std::FILE* pipe = ::popen(command.c_str(), "r");
  Ended ended;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) {
    ended.output.append(buffer, got);
  }
  const int status = ::pclose(pipe);
  ended.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  ended.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return ended;
}

std::string digest_of(const Ended& ended, int rank, const std::string& backend) {
  const std::string head = fmt::format("rank {} of 4 on {}: ", rank, backend);
  const size_t begin = ended.output.find(head);
  EXPECT_NE(begin, std::string::npos) << ended.output;
  return begin == std::string::npos ? "" : ended.output.substr(begin + head.size(), 16);
}

TEST(World, OfProcessesReducesGathersAndBroadcastsExactly) {
  for (const std::string backend : {"shm", "gloo"}) {
    const Ended ended = play("exact operations", backend, 4);
    EXPECT_EQ(ended.status, 0) << ended.output;
    for (int rank = 0; rank < 4; ++rank) {
      const auto line = fmt::format("rank {} of 4 on {}: exact\n", rank, backend);
      EXPECT_NE(ended.output.find(line), std::string::npos) << ended.output;
    }
  }
}

TEST(World, OfProcessesGivesTheSameBitsOverShmAndGloo) {
  const Ended shm = play("operations", "auto", 4), gloo = play("operations", "gloo", 4);
  EXPECT_EQ(shm.status, 0) << shm.output;
  EXPECT_EQ(gloo.status, 0) << gloo.output;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(digest_of(shm, rank, "shm"), digest_of(gloo, rank, "gloo"));
  }
}

TEST(World, NamesTheRankThatWasKilled) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (const int victim : {0, 1}) {
      const Ended ended = play(fmt::format("rank {} dies", victim), backend);
      EXPECT_EQ(ended.status, 137);
      EXPECT_THAT(ended.output,
                  HasSubstr(fmt::format("error: rank {}: killed by signal 9 (Killed)", victim)));
      EXPECT_THAT(ended.output,
                  HasSubstr(fmt::format("error: rank {}: all_reduce of blocks.3 (group world, "
                                        "sequence 3) waits for rank {}, which died; its last act: "
                                        "all_reduce of blocks.2",
                                        1 - victim, victim)));
    }
  }
}

// Ranks 0 and 1 wait for their init timeout of 1.5 s.
TEST(WorldSlow, NamesTheRanksThatDoNotCome) {
  const Ended ended = play("lonely", "gloo");
  EXPECT_THAT(ended.output, HasSubstr("error: world: rank 2 of 3 did not come to 127.0.0.1:"));
  EXPECT_THAT(ended.output, HasSubstr("[1] error: world: rank 2 of 3 did not come"));
  EXPECT_EQ(ended.status, 1);
}

// It tells the others, who would wait for it otherwise.
// Whichever rank ends first takes the others with it, so only one message is sure to be seen; both
// name the device.
TEST(World, NamesTheRankThatHasNoDevice) {
  for (const std::string backend : {"shm", "gloo"}) {
    const Ended ended = play("rank 1 has no device", backend);
    EXPECT_NE(ended.status, 0);
    EXPECT_THAT(ended.output, AnyOf(HasSubstr("[1] error: device 'cuda:99': "),
                                    HasSubstr("error: world: rank 1 has no device to compute on: "
                                              "device 'cuda:99': ")));
  }
}

TEST(World, CanBeMadeTwiceInOneProcess) {
  const Ended ended = play("worlds", "gloo");
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("rank 1 of 2 on gloo"));
}

}  // namespace
}  // namespace fullshard::comm
