// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A root (unit 0) of 10 elements around three blocks of 100.
Schedule seen(const ScheduleOptions& options) {
  Schedule schedule(options, {10, 100, 100, 100});
  schedule.note_start(0);
  for (const int block : {1, 2, 3}) {
    schedule.note_start(block);
    schedule.note_end(block);
  }
  schedule.note_end(0);
  schedule.seal();
  return schedule;
}

TEST(Schedule, LooksAheadAlongForward) {
  const auto schedule = seen({});
  EXPECT_THAT(schedule.next_in_forward(1), ElementsAre(2, 3));
  EXPECT_THAT(schedule.next_in_forward(3), IsEmpty());
}

// Forwards that follow each other: the first units come after the last.
TEST(Schedule, LooksAheadIntoTheNextForwardWhereForwardsRepeat) {
  const auto schedule = seen({.max_gathers_in_flight = 2, .repeats_forward = true});
  EXPECT_THAT(schedule.next_in_forward(2), ElementsAre(3, 0, 1));
  EXPECT_TRUE(schedule.prefetches_forward());
  EXPECT_TRUE(schedule.may_prefetch(3, /*in_flight=*/1, /*live=*/200, /*ahead=*/100));
  EXPECT_FALSE(schedule.may_prefetch(3, /*in_flight=*/2, /*live=*/200, /*ahead=*/200));
}

TEST(Schedule, AUnitCalledAgainIsLookedForWhereItWasFirstSeen) {
  auto schedule = seen({});
  schedule.note_start(1);
  schedule.note_end(1);
  EXPECT_THAT(schedule.next_in_forward(0), ElementsAre(1, 2, 3));
}

TEST(Schedule, FetchesOneUnitAheadByDefault) {
  const auto schedule = seen({});
  EXPECT_TRUE(schedule.may_prefetch(2, 0, 110, 0));
  EXPECT_FALSE(schedule.may_prefetch(3, 1, 210, 100));
}

TEST(Schedule, LimitsGathersInFlight) {
  const auto schedule = seen({.max_gathers_in_flight = 1});
  EXPECT_FALSE(schedule.may_prefetch(2, 1, 0, 0));
  EXPECT_THROW(seen({.max_gathers_in_flight = 0}), Error);
}

TEST(Schedule, FetchesAheadWithinTheBucket) {
  const auto schedule = seen({.max_gathers_in_flight = 9, .prefetch_bucket_size = 250});
  EXPECT_TRUE(schedule.may_prefetch(2, 1, 0, 100));
  EXPECT_FALSE(schedule.may_prefetch(3, 2, 0, 200));
}

TEST(Schedule, StaysBelowMaxLiveParameters) {
  const auto schedule = seen({.max_live_parameters = 150});
  EXPECT_TRUE(schedule.may_prefetch(2, 0, 50, 0));
  EXPECT_FALSE(schedule.may_prefetch(2, 0, 51, 0));
}

TEST(Schedule, FetchesOneUnitAheadOnAcceleratorsWhateverTheLimits) {
  const ScheduleOptions small{
      .forward_prefetch = false, .prefetch_bucket_size = 50, .max_live_parameters = 60};
  const Schedule cpu(small, {10, 100, 100});
  EXPECT_FALSE(cpu.prefetches_forward());
  EXPECT_FALSE(cpu.may_prefetch(1, 0, 10, 0));
  const Schedule gpu(small, {10, 100, 100}, Ahead::one_unit);
  EXPECT_TRUE(gpu.prefetches_forward());
  EXPECT_TRUE(gpu.may_prefetch(1, 0, 10, 0));
  EXPECT_FALSE(gpu.may_prefetch(2, 1, 110, 100));
  const Schedule none({.overlap_comm = false}, {10, 100, 100}, Ahead::one_unit);
  EXPECT_FALSE(none.may_prefetch(1, 0, 10, 0));
}

TEST(Schedule, FetchesNothingAheadWithoutOverlap) {
  const auto schedule = seen({.overlap_comm = false});
  EXPECT_FALSE(schedule.may_prefetch(2, 0, 0, 0));
  EXPECT_EQ(schedule.max_reductions_in_flight(), 0);
}

TEST(Schedule, ReleasesAfterForwardExceptTheRoot) {
  const auto schedule = seen({});
  EXPECT_TRUE(schedule.keeps_after_forward(0, 10));
  EXPECT_FALSE(schedule.keeps_after_forward(3, 110));
  EXPECT_TRUE(seen({.reshard_after_forward = false}).keeps_after_forward(1, 310));
}

TEST(Schedule, KeepsWhatIsUsedAgainSoon) {
  // Between the end of block 3 and its backward only the root is used, twice: 20 elements.
  const auto schedule = seen({.max_reuse_distance = 21});
  EXPECT_TRUE(schedule.keeps_after_forward(3, 110));
  EXPECT_FALSE(schedule.keeps_after_forward(2, 110));
  EXPECT_FALSE(seen({.max_reuse_distance = 20}).keeps_after_forward(3, 110));
}

TEST(Schedule, KeepsWhatEndsTheForwardWithinTheLiveLimit) {
  EXPECT_TRUE(seen({}).keeps_after_forward(3, 110, /*is_last=*/true));
  const auto limited = seen({.max_live_parameters = 150});
  EXPECT_TRUE(limited.keeps_after_forward(3, 150, /*is_last=*/true));
  EXPECT_FALSE(limited.keeps_after_forward(3, 151, /*is_last=*/true));
}

TEST(Schedule, ReleasesEarlierThanAskedRatherThanExceedTheLiveLimit) {
  const auto schedule = seen({.reshard_after_forward = false, .max_live_parameters = 150});
  EXPECT_TRUE(schedule.keeps_after_forward(1, 110));
  EXPECT_FALSE(schedule.keeps_after_forward(2, 210));
}

}  // namespace
}  // namespace fullshard::engine
