// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/climb.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/tuning/ladder.h"
#include "fullshard/tuning/tune_text.h"
#include "tests/tuning/fake_trials.h"

namespace fullshard::tuning {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<int64_t> up_to(int64_t most) {
  std::vector<int64_t> batches;
  for (int64_t batch = 1; batch <= most; ++batch) batches.push_back(batch);
  return batches;
}

const RungResult& winner_of(const Climbed& climbed) {
  EXPECT_TRUE(climbed.winner.has_value());
  return climbed.results.at(climbed.winner.value_or(0));
}

// Bytes of states that a rung leaves on the device, of 80 without sharding; recomputation makes a
// batch's activations a tenth.
int64_t bytes_of(const Rung& rung) {
  const int64_t states = rung.stage == 0 ? 80 : rung.stage == 1 ? 50 : rung.stage == 2 ? 40 : 20;
  const bool both = rung.offloaded == Offloaded::both || rung.offloaded == Offloaded::to_disk;
  const int64_t left = rung.offloaded == Offloaded::nothing ? states : both ? 2 : states / 2;
  return left + rung.micro_batch * (rung.recompute ? 1 : 10);
}

TEST(Climb, MeasuresStagesAndOnlyPlansOffloadThatIsNotNeeded) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2, .on_gpus = true})}, trials);
  EXPECT_THAT(trials.measured,
              ElementsAre("batch 1", "recomputation", "ZeRO-1", "ZeRO-2", "ZeRO-3"));
  EXPECT_EQ(trials.noted.size(), 10u);
  EXPECT_EQ(climbed.results[4].why, "not measured: not needed to fit");
  EXPECT_EQ(climbed.results[4].planned_bytes, 21);
  EXPECT_FALSE(climbed.is_cut_short);
}

TEST(Climb, ClimbsUntilOneFits) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.limit = 11;
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2, .on_gpus = true})}, trials);
  EXPECT_THAT(trials.measured, ElementsAre("ZeRO-3 + parameter offload"));
  EXPECT_EQ(winner_of(climbed).rung.title(), "ZeRO-3 + parameter offload");
}

TEST(Climb, BelievesTheMeasurementWhereThePlanWasWrong) {
  FakeTrials trials;
  trials.held = [](const Rung& rung) { return rung.stage < 2 ? 101 : 100; };
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2})}, trials);
  EXPECT_EQ(winner_of(climbed).rung.title(), "ZeRO-2");
  EXPECT_EQ(climbed.results[0].why, "out of memory");
  EXPECT_FALSE(climbed.results[0].fits);
}

TEST(Climb, FromTheFrugalEndMeasuresAllInThatOrder) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.limit = 60;
  climb({.rungs = ladder({.ranks = 2}), .from_frugal = true}, trials);
  EXPECT_THAT(trials.measured, ElementsAre("disk", "16 bit", "ZeRO-3", "ZeRO-2", "ZeRO-1",
                                           "disk without recomputation"));
}

// The batch pays, recomputation costs: a batch of 2 without it, or of 20 with it.
TEST(Climb, FindsTheFastestWithItsLargestBatch) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.speed = [](const Rung& rung) {
    const auto batch = static_cast<double>(rung.micro_batch);
    return 100 * batch / (batch + 4) * (rung.recompute ? 0.8 : 1.0) * (1 - 0.15 * rung.stage);
  };
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2}), .batches = up_to(64)}, trials);
  EXPECT_THAT(trials.measured, Contains("batch 2"));
  EXPECT_THAT(trials.measured, Contains("recomputation, batch 20"));
  EXPECT_THAT(trials.measured, Contains("ZeRO-1, batch 50"));
  EXPECT_THAT(trials.measured, Contains("ZeRO-2, batch 60"));
  EXPECT_THAT(trials.measured, Not(Contains(HasSubstr("ZeRO-3, batch"))));
  EXPECT_EQ(winner_of(climbed).rung.title(), "recomputation, batch 20");
  EXPECT_EQ(winner_of(climbed).peak_bytes, 100);
}

TEST(Climb, HalvesTheGapWhereThePlannedBatchDoesNotFit) {
  FakeTrials trials;
  trials.planned = bytes_of;
  trials.held = [](const Rung& rung) { return rung.micro_batch > 13 ? 101 : 50; };
  trials.speed = [](const Rung& rung) { return static_cast<double>(rung.micro_batch); };
  auto only = ladder({.ranks = 1, .keeps_offload = true, .keeps_precision = true});
  const Climbed climbed = climb({.rungs = only, .batches = up_to(64)}, trials);
  EXPECT_EQ(winner_of(climbed).rung.title(), "recomputation, batch 13");
}

TEST(Climb, FindsTheBatchWithoutAPlan) {
  FakeTrials trials;
  trials.plans = false;
  trials.held = [](const Rung& rung) { return rung.micro_batch > 5 ? 101 : 50; };
  trials.speed = [](const Rung& rung) { return static_cast<double>(rung.micro_batch); };
  const Climbed climbed = climb({.rungs = {Rung{}}, .batches = up_to(64)}, trials);
  EXPECT_THAT(trials.measured,
              ElementsAre("batch 1", "batch 2", "batch 4", "batch 8", "batch 6", "batch 5"));
  EXPECT_EQ(winner_of(climbed).rung.micro_batch, 5);
  EXPECT_FALSE(winner_of(climbed).planned_bytes.has_value());
}

TEST(Climb, GoesBackToLessOffloadWithTheLargestBatch) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.limit = 60;
  // At batch 1 all are alike, so the first measured wins: from the frugal end that is the disk.
  trials.speed = [](const Rung& rung) {
    const double cost = rung.stage + 0.1 * static_cast<int>(rung.offloaded);
    return rung.micro_batch == 1 ? 1.0 : 10.0 - cost - (rung.sixteen_bit ? 0.5 : 0.0);
  };
  const Climbed climbed = climb(
      {.rungs = ladder({.ranks = 2, .on_gpus = true}), .from_frugal = true, .batches = up_to(64)},
      trials);
  EXPECT_EQ(winner_of(climbed).rung.title(), "ZeRO-1, batch 10");
}

// One measurement that was disturbed does not end the search: ZeRO-1 looks slower than it is.
TEST(Climb, GoesOnPastOneSlowMeasurement) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.speed = [](const Rung& rung) {
    if (rung.micro_batch == 1) return rung.stage == 2 ? 2.0 : 1.0;
    return rung.stage == 1 ? 0.5 : 10.0 - rung.stage;
  };
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2}), .batches = up_to(64)}, trials);
  EXPECT_THAT(trials.measured, Contains("ZeRO-1, batch 50"));
  EXPECT_EQ(winner_of(climbed).rung.stage, 0);
}

// Recomputation is on every rung above it, and here only costs.
TEST(Climb, TriesTheWinnerWithoutRecomputation) {
  FakeTrials trials;
  trials.planned = trials.held = bytes_of;
  trials.speed = [](const Rung& rung) {
    const auto batch = static_cast<double>(std::min<int64_t>(rung.micro_batch, 8));
    return (10 + batch) * (rung.recompute ? 0.6 : 1.0) * (rung.stage == 3 ? 2 : 1);
  };
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2}), .batches = up_to(64)}, trials);
  EXPECT_THAT(trials.measured, Contains("ZeRO-3, batch 64"));
  EXPECT_EQ(winner_of(climbed).rung.title(), "ZeRO-3 without recomputation, batch 8");
  EXPECT_FALSE(winner_of(climbed).rung.recompute);
}

TEST(Climb, StopsAtTheBudgetAndSaysSo) {
  FakeTrials trials;
  trials.num_measurements_left = 2;
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2}), .batches = up_to(8)}, trials);
  EXPECT_EQ(trials.measured.size(), 2u);
  EXPECT_TRUE(climbed.is_cut_short);
  EXPECT_EQ(climbed.results[2].why, "not measured: the budget is spent");
  EXPECT_THAT(choice_text(climbed), HasSubstr("the budget ended before all were tried"));
}

TEST(Climb, TheFirstOfEqualsWins) {
  FakeTrials trials;
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2})}, trials);
  EXPECT_EQ(winner_of(climbed).rung.title(), "batch 1");
  EXPECT_THAT(choice_text(climbed), HasSubstr("chosen: batch 1: "));
}

TEST(Climb, NamesTheChangesWhenNothingFits) {
  FakeTrials trials;
  trials.planned = bytes_of;
  trials.limit = 1;
  const Climbed climbed = climb({.rungs = ladder({.ranks = 2})}, trials);
  EXPECT_FALSE(climbed.winner.has_value());
  EXPECT_TRUE(trials.measured.empty());
  const std::string text = nothing_fits_text(climbed);
  EXPECT_THAT(text, HasSubstr("nothing fits. disk, which needs the least: does not fit: 3 bytes"));
  EXPECT_THAT(text, HasSubstr("In order of cost: more ranks"));
}

}  // namespace
}  // namespace fullshard::tuning
