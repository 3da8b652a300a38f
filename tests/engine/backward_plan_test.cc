// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/backward_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace fullshard::engine {
namespace {

// "R( A( A) R)" is a unit R around a unit A; "[" and "]" surround a recomputed call.
std::vector<ForwardLog::Entry> log_of(const std::string& text) {
  ForwardLog log;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') log.enter_recomputed();
    if (text[i] == ']') log.leave_recomputed();
    if (i == 0) continue;
    const int unit = text[i - 1] == 'R' ? 0 : text[i - 1] - 'A' + 1;
    if (text[i] == '(') log.start(unit);
    if (text[i] == ')') log.end(unit);
  }
  return log.entries();
}

std::string name(int unit) {
  return unit == 0 ? "R" : std::string(1, static_cast<char>('A' + unit - 1));
}

// "R( C( +B C) …": what begins, what is gathered ahead there, what ends.
std::string text_of(const std::vector<BackwardStep>& steps) {
  std::string text;
  for (const auto& step : steps) {
    if (!text.empty()) text += " ";
    text += name(step.unit) + (step.mark == BackwardStep::Mark::begin ? "(" : ")");
    for (const int unit : step.ahead) text += " +" + name(unit);
  }
  return text;
}

std::string reversed(const std::string& forward) { return text_of(reverse_order(log_of(forward))); }

TEST(BackwardPlan, ReversesBeginningsAndEnds) {
  EXPECT_EQ(reversed("R( A( A) B( C( C) B) R)"), "R( B( C( C) B) A( A) R)");
}

TEST(BackwardPlan, AUnitCalledTwiceBeginsAtItsLastCallAndEndsAtItsFirst) {
  EXPECT_EQ(reversed("R( A( A) B( B) A( A) R)"), "R( A( B( B) A) R)");
}

TEST(BackwardPlan, UnitsInARecomputedCallBeginInTheOrderOfItsReplay) {
  EXPECT_EQ(reversed("R( A( [ B( B) C( C) ] A) D( D) R)"), "R( D( D) A( B( C( C) B) A) R)");
  EXPECT_EQ(reversed("R( A( [ B( D( D) B) C( C) ] A) R)"), "R( A( B( D( C( C) D) B) A) R)");
}

TEST(BackwardPlan, AUnitOfTwoRecomputedCallsBeginsInTheLaterAndEndsInTheEarlier) {
  EXPECT_EQ(reversed("R( A( [ B( B) ] A) A( [ B( B) C( C) ] A) R)"), "R( A( B( C( C) B) A) R)");
}

TEST(BackwardPlan, AForwardThatFailedHalfWayOnlyDelaysItsEnds) {
  EXPECT_EQ(reversed("R( A( R( A( A) B( B) R)"), "R( B( B) A( A) R)");
}

Schedule schedule_of(const ScheduleOptions& options) {
  return Schedule(options, {10, 100, 100, 100});
}

std::string planned(const ScheduleOptions& options,
                    std::vector<bool> is_live = {true, false, false, false}) {
  auto steps = reverse_order(log_of("R( A( A) B( B) C( C) R)"));
  plan_gathers_ahead(steps, schedule_of(options), is_live);
  return text_of(steps);
}

TEST(BackwardPlan, FetchesOneUnitAheadWhileAUnitComputes) {
  EXPECT_EQ(planned({}), "R( +C C( +B C) B( +A B) A( A) R)");
}

TEST(BackwardPlan, FetchesAfterAUnitHasEnded) {
  EXPECT_EQ(planned({.backward_prefetch = BackwardPrefetch::post}),
            "R( C( C) +B B( B) +A A( A) R)");
}

TEST(BackwardPlan, FetchesNothingAheadWhenToldSo) {
  EXPECT_EQ(planned({.backward_prefetch = BackwardPrefetch::none}), "R( C( C) B( B) A( A) R)");
  EXPECT_EQ(planned({.overlap_comm = false}), "R( C( C) B( B) A( A) R)");
}

TEST(BackwardPlan, FetchesOneUnitAheadOnAcceleratorsAlsoWhenToldNothing) {
  const auto planned_there = [](const ScheduleOptions& options) {
    auto steps = reverse_order(log_of("R( A( A) B( B) C( C) R)"));
    const Schedule schedule(options, {10, 100, 100, 100}, Ahead::one_unit);
    plan_gathers_ahead(steps, schedule, {true, false, false, false});
    return text_of(steps);
  };
  EXPECT_EQ(planned_there({.backward_prefetch = BackwardPrefetch::none}),
            "R( +C C( +B C) B( +A B) A( A) R)");
  EXPECT_EQ(planned_there({.backward_prefetch = BackwardPrefetch::post}),
            "R( C( C) +B B( B) +A A( A) R)");
  EXPECT_EQ(planned_there({.backward_prefetch = BackwardPrefetch::none, .overlap_comm = false}),
            "R( C( C) B( B) A( A) R)");
}

TEST(BackwardPlan, FetchesWithinTheBucketAndTheLiveLimit) {
  EXPECT_EQ(planned({.max_gathers_in_flight = 9, .prefetch_bucket_size = 200}),
            "R( +C +B C( +A C) B( B) A( A) R)");
  EXPECT_EQ(planned({.max_live_parameters = 110}), "R( +C C( C) B( B) A( A) R)");
}

TEST(BackwardPlan, DoesNotFetchWhatItsBackwardDoesNotRead) {
  auto steps = reverse_order(log_of("R( A( A) B( B) C( C) R)"));
  for (auto& step : steps) step.gathers = step.unit != 2;
  // What is not gathered does not count against the limit either.
  plan_gathers_ahead(steps, schedule_of({.max_live_parameters = 210}), {true, false, false, false});
  EXPECT_EQ(text_of(steps), "R( +C C( +A C) B( B) A( A) R)");
}

TEST(BackwardPlan, DoesNotFetchWhatIsThere) {
  EXPECT_EQ(planned({}, {true, true, false, true}), "R( +B C( C) B( B) A( A) R)");
}

}  // namespace
}  // namespace fullshard::engine
