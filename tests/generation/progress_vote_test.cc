// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/progress_vote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "fullshard/comm/world/world.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

using generation::ProgressVote;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kStepLimit{2000};

// The first rank waits for longer than the limit of one step, since the last one makes steps.
TEST(ProgressVote, WaitsForARankAsLongAsItMakesSteps) {
  for (const int num_ranks : {1, 2, 3}) {
    std::atomic<int> num_done = 0;
    run_ranks({.ranks = num_ranks, .timeouts = {.step = kStepLimit}}, [&](const World& world) {
      ProgressVote progress(world.communicator(), kStepLimit);
      for (int round = 0; round < 2; ++round) {
        const auto start = std::chrono::steady_clock::now();
        const bool is_last = world.rank() + 1 == world.size();
        const auto length = is_last && round == 0 ? kStepLimit * 3 / 2 : kStepLimit / 100;
        while (std::chrono::steady_clock::now() - start < length) progress.step();
        ++num_done;
        progress.wait_for_all();
        EXPECT_GE(num_done, num_ranks * (round + 1));
        progress.wait_for_all();
      }
    });
  }
}

TEST(ProgressVote, NamesARankThatStandsStill) {
  for (const bool is_done : {true, false}) {
    std::promise<void> others_have_ended;
    const auto ended = others_have_ended.get_future().share();
    EXPECT_THAT(message_of([&] {
                  run_ranks({.ranks = 2, .timeouts = {.step = kStepLimit}},
                            [&](const World& world) {
                              ProgressVote progress(world.communicator(), kStepLimit);
                              if (world.rank() == 1) return ended.wait();
                              try {
                                if (is_done) progress.wait_for_all();
                                while (!is_done) progress.step();
                              } catch (const Error&) {
                                others_have_ended.set_value();
                                throw;
                              }
                            });
                }),
                HasSubstr("rank 1"))
        << is_done;
  }
}

}  // namespace
}  // namespace fullshard::testing
