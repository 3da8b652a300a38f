// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/early_stopping.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace fullshard::train {
namespace {

// The number of the evaluation, from 1, that ends a run with these losses; 0: none does.
int ending(const EarlyStoppingOptions& options, const std::vector<double>& losses) {
  const EarlyStoppingRule stopping(options);
  std::optional<BestEvaluation> best;
  for (size_t i = 0; i < losses.size(); ++i) {
    best = stopping.add(best, static_cast<int64_t>(i + 1), losses[i]);
    if (stopping.is_due(*best)) return static_cast<int>(i + 1);
  }
  return 0;
}

TEST(EarlyStopping, CountsEvaluationsWithoutALowerLoss) {
  EXPECT_EQ(ending({.patience = 2}, {3, 2, 2.5, 2.4}), 4);
  EXPECT_EQ(ending({.patience = 2}, {3, 2, 2.5, 1.9, 2, 2}), 6);  // counted anew
  EXPECT_EQ(ending({.patience = 1}, {3, 3}), 2);                  // not lower
  EXPECT_EQ(ending({.patience = 3}, {3, 2, 1, 0.5}), 0);
  EXPECT_EQ(ending({}, {1, 2, 3, 4, 5, 6}), 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ending({.patience = 2}, {3, nan, nan}), 3);
}

// As the Trainer's callback: compared with the best so far, which small gains lower too.
TEST(EarlyStopping, SmallGainsDoNotCount) {
  EXPECT_EQ(ending({.patience = 2, .threshold = 0.5}, {3, 2.8, 2.6}), 3);
  EXPECT_EQ(ending({.patience = 2, .threshold = 0.5}, {3, 2.8, 2.2, 2.1}), 0);
  EXPECT_EQ(ending({.patience = 2, .threshold = 0.5}, {3, 2.8, 2.2, 2.1, 2}), 5);
}

TEST(EarlyStopping, SaysWhy) {
  const EarlyStoppingRule stopping({.patience = 2, .threshold = 0.25});
  EXPECT_EQ(stopping.reason({.step = 40, .loss = 1.5, .evaluations_without = 2}),
            "the evaluation loss has not fallen by more than 0.25 in 2 evaluations; it was 1.5 at "
            "step 40");
}

}  // namespace
}  // namespace fullshard::train
