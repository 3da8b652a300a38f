#include "fullshard/checkpoint/patient_work.h"

#include <gtest/gtest.h>

#include <atomic>

#include "fullshard/comm/world.h"

namespace fullshard {
namespace {

using std::chrono::milliseconds;

// Twice as long as a rank may be late to a collective.
TEST(PatientWork, OutlastsTheTimeLimitOfCollectives) {
  std::atomic<int> runs = 0;
  const ThreadRanks ranks{.ranks = 3, .timeouts = {.step = milliseconds(2000)}};
  run_ranks(ranks, [&](const World& world) {
    PatientWork work(milliseconds(50));
    work.run(world.communicator(), [&] {
      std::this_thread::sleep_for(milliseconds(4000));
      ++runs;
    });
    EXPECT_EQ(runs, 1);
  });
}

TEST(PatientWork, RunsAtOnceWhereThereIsOneRank) {
  const auto here = std::this_thread::get_id();
  PatientWork work;
  work.run(World::single().communicator(), [&] { EXPECT_EQ(std::this_thread::get_id(), here); });
}

}  // namespace
}  // namespace fullshard
