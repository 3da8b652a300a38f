// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/patient_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "fullshard/comm/world/world.h"

namespace fullshard::checkpoint {
namespace {

using std::chrono::milliseconds;

class PatientWorkSlow : public ::testing::TestWithParam<const char*> {};

// Longer than a rank may be late to a collective.
TEST_P(PatientWorkSlow, OutlastsTheTimeLimitOfCollectives) {
  std::atomic<int> runs = 0;
  const ThreadRanks ranks{
      .ranks = 3, .backend = GetParam(), .timeouts = {.step = milliseconds(2000)}};
  run_ranks(ranks, [&](const World& world) {
    world.communicator().barrier();
    wait_for_rank_0(world.communicator(), [&] {
      std::this_thread::sleep_for(milliseconds(3000));
      ++runs;
    });
    EXPECT_EQ(runs, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, PatientWorkSlow, ::testing::Values("shm", "gloo"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace fullshard::checkpoint
