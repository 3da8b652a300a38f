// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/run_totals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fullshard::report {
namespace {

using ::testing::HasSubstr;

StepRecord at_step(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .tokens = 1000,
          .step_s = 2,
          .tokens_per_s = 500 + static_cast<double>(step),
          .host_peak_bytes = 100 * step};
}

TEST(RunTotals, AddsUpSteps) {
  RunTotals totals;
  totals.add(at_step(1, 3));
  totals.add(at_step(2, 2));
  StepRecord third = at_step(3, 2.5);
  third.skipped = true;
  third.eval_loss = 2.75;
  totals.add(third);
  EXPECT_EQ(totals.num_steps(), 3);
  EXPECT_EQ(totals.num_skipped(), 1);
  EXPECT_EQ(totals.tokens(), 3000);
  EXPECT_EQ(totals.seconds(), 6);
  EXPECT_EQ(totals.best()->loss, 2);
  EXPECT_EQ(totals.best()->step, 2);
  EXPECT_EQ(totals.last_evaluation()->loss, 2.75);
  EXPECT_EQ(totals.median_tokens_per_s(), 502);
  EXPECT_EQ(totals.host_peak_bytes(), 300);
  EXPECT_EQ(totals.median_mfu(), std::nullopt);
}

TEST(RunTotals, TakesStepsThatWereNotRecordedToBeLikeTheNext) {
  RunTotals totals;
  totals.add(at_step(10, 1));
  EXPECT_EQ(totals.num_steps(), 1) << "where it began is not known yet";
  totals.add(at_step(20, 1));
  EXPECT_EQ(totals.num_steps(), 20);
  EXPECT_EQ(totals.tokens(), 20000);
  EXPECT_EQ(totals.median_tokens_per_s(), 515);
}

TEST(RunTotals, CountFromWhereTheRunBegan) {
  RunTotals from_start(0), resumed(5);
  from_start.add(at_step(8, 1));
  EXPECT_EQ(from_start.num_steps(), 8);
  EXPECT_EQ(from_start.tokens(), 8000);
  EXPECT_EQ(from_start.seconds(), 16);
  resumed.add(at_step(6, 1));
  resumed.add(at_step(9, 1));
  EXPECT_EQ(resumed.num_steps(), 4);
  EXPECT_EQ(resumed.first_step(), 5);
}

TEST(RunTotals, TellWhereAFileWithoutItsBeginningBegins) {
  RunTotals totals;
  totals.add(at_step(110, 1));
  EXPECT_EQ(totals.first_step(), 0) << "not known yet";
  totals.add(at_step(120, 1));
  EXPECT_EQ(totals.first_step(), 100);
  EXPECT_EQ(totals.num_steps(), 20);
}

TEST(RunTotals, KeepsWhatIsNotFiniteOutOfOrders) {
  RunTotals totals;
  StepRecord broken = at_step(1, std::nan(""));
  broken.tokens_per_s = broken.step_s = std::nan("");
  totals.add(broken);
  EXPECT_EQ(totals.best(), std::nullopt);
  EXPECT_EQ(totals.median_tokens_per_s(), 0);
  EXPECT_EQ(totals.seconds(), 0);
}

TEST(RunTotals, StaysAtTheLargestCount) {
  RunTotals totals;
  StepRecord boast = at_step(1, 1);
  boast.tokens = std::numeric_limits<int64_t>::max();
  totals.add(boast);
  boast.step = 9;
  totals.add(boast);
  EXPECT_EQ(totals.tokens(), std::numeric_limits<int64_t>::max());
}

TEST(SummaryTable, SaysWhatARunCameTo) {
  RunTotals totals;
  totals.add(at_step(1, 3));
  StepRecord second = at_step(2, 3.5);
  second.eval_loss = 3.25;
  second.mfu = 0.5;
  second.skipped = true;
  totals.add(second);
  EXPECT_EQ(summary_table(totals, {75}, {{"model", "out/model"}, {"report", "out/report.html"}}),
            "steps       2 (1 skipped)\n"
            "tokens      2 K\n"
            "time        1:15, 0:04 inside steps\n"
            "loss        3.5000 last, 3.0000 best (step 1)\n"
            "evaluation  3.2500 last, 3.2500 best (step 2)\n"
            "tokens/s    502 median\n"
            "MFU         50.0% median\n"
            "memory      200 B of a rank's host\n"
            "model       out/model\n"
            "report      out/report.html\n");
}

TEST(SummaryTable, SaysOfWhichStepsTheClockIs) {
  RunTotals totals;
  for (int step = 1; step <= 3; ++step) totals.add(at_step(step, 3));
  const std::string text = summary_table(totals, {75, 2}, {});
  EXPECT_THAT(text, HasSubstr("steps     3\ntokens    3 K\n"
                              "time      1:15, since step 2; 0:06 inside all steps\n"));
}

TEST(SummaryTable, NamesTheStepsOfAnotherRun) {
  RunTotals totals(100);
  totals.add(at_step(101, 3));
  totals.add(at_step(102, 3));
  EXPECT_THAT(summary_table(totals, {75, 100}, {}),
              HasSubstr("steps     2 since step 100\ntokens    2 K\n"
                        "time      1:15, 0:04 inside steps\n"));
}

}  // namespace
}  // namespace fullshard::report
