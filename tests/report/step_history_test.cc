// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/step_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fullshard/report/records/even_sample.h"
#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/run_summary.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

StepRecord ordinary(int64_t step) {
  const auto x = static_cast<double>(step);
  return {.step = step,
          .loss = 3 + std::sin(x),
          .grad_norm = 1 + 0.5 * std::cos(x),
          .tokens = 10,
          .step_s = 0.5,
          .tokens_per_s = 20 + std::sin(3 * x)};
}

bool holds(const StepHistory& history, int64_t step) {
  return std::any_of(history.steps().begin(), history.steps().end(),
                     [&](const StepRecord& record) { return record.step == step; });
}

TEST(StepHistory, KeepsEveryStepOfAShortRun) {
  StepHistory history(100);
  for (int64_t step = 1; step < 200; ++step) history.add(ordinary(step));
  EXPECT_EQ(history.steps().size(), 199u);
  EXPECT_FALSE(history.is_thinned());
}

TEST(StepHistory, OfALongRunIsBoundedAndKeepsWhatStandsOut) {
  StepHistory history(100);
  size_t most = 0;
  for (int64_t step = 1; step <= 100'000; ++step) {
    StepRecord record = ordinary(step);
    if (step == 777) record.loss = 90;
    if (step == 778) record.loss = std::numeric_limits<double>::quiet_NaN();
    if (step == 41'000) record.grad_norm = 1e6;
    if (step == 62'000) record.tokens_per_s = 0.5;
    if (step == 70'001) record.eval_loss = 2.5;
    history.add(record);
    most = std::max(most, history.steps().size());
  }
  EXPECT_LT(most, 200u);
  EXPECT_GT(history.steps().size(), 50u);
  for (const int64_t step : {1, 777, 778, 41'000, 62'000, 70'001, 100'000}) {
    EXPECT_TRUE(holds(history, step)) << step;
  }
  EXPECT_TRUE(
      std::is_sorted(history.steps().begin(), history.steps().end(),
                     [](const StepRecord& a, const StepRecord& b) { return a.step < b.step; }));
  // Early steps are not rarer than late ones.
  const auto early = std::count_if(history.steps().begin(), history.steps().end(),
                                   [](const StepRecord& record) { return record.step < 50'000; });
  EXPECT_GT(early, 20);
}

TEST(EvenSample, KeepsAllOfAFewAndASpreadOfMany) {
  EvenSample sample(8);
  for (int i = 0; i < 7; ++i) sample.add(i);
  EXPECT_EQ(sample.values(), (std::vector<double>{0, 1, 2, 3, 4, 5, 6}));
  for (int i = 7; i < 17; ++i) sample.add(i);
  EXPECT_EQ(sample.values(), (std::vector<double>{0, 4, 8, 12, 16}));
  for (int i = 17; i < 100'000; ++i) sample.add(i);
  EXPECT_LT(sample.values().size(), 8u);
  EXPECT_GT(sample.values().back(), 50'000);
}

TEST(MetricsReading, OfALongFileIsBoundedAndItsTotalsAreThoseOfAllLines) {
  const testing::TemporaryFolder folder;
  constexpr int64_t kSteps = 30'000;
  {
    MetricsWriter writer(folder.file("m"));
    for (int64_t step = 1; step <= kSteps; ++step) writer.append(ordinary(step));
  }
  const MetricsReading reading = read_metrics(folder.file("m"));
  EXPECT_LT(reading.steps.size(), 8192u);
  EXPECT_EQ(reading.totals().num_steps(), kSteps);
  EXPECT_EQ(reading.totals().tokens(), 10 * kSteps);
  EXPECT_EQ(reading.totals().seconds(), 0.5 * kSteps);
  EXPECT_EQ(reading.totals().last()->step, kSteps);
  EXPECT_NEAR(reading.totals().median_tokens_per_s(), 20, 0.1);
}

TEST(RunSummary, OfALongRunCountsAllItsSteps) {
  const testing::TemporaryFolder folder;
  constexpr int64_t kSteps = 10'000;
  {
    MetricsWriter writer(folder.file("metrics.jsonl"));
    for (int64_t step = 1; step <= kSteps; ++step) writer.append(ordinary(step));
  }
  const std::string summary = run_summary_json(read_run_folder(folder.path()), "", false);
  EXPECT_THAT(summary, ::testing::HasSubstr(R"("tokens":100000,)"));
  EXPECT_THAT(summary, ::testing::HasSubstr(R"("steps":10000,)"));
}

}  // namespace
}  // namespace fullshard::report
