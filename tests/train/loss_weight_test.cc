// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/loss_weight.h"

#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"

namespace fullshard::train {
namespace {

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// A loss per label; numbers that no two subsets share the mean of.
std::vector<double> label_losses(int rank, int micro_batch, int64_t num_labels) {
  std::vector<double> losses(num_labels);
  for (int64_t i = 0; i < num_labels; ++i)
    losses[i] = 1.0 + rank * rank + 0.5 * micro_batch + 3 * i;
  return losses;
}

// labels_of[rank][micro-batch].
void expect_mean_over_all_labels(const std::vector<std::vector<int64_t>>& labels_of) {
  const auto num_ranks = static_cast<int>(labels_of.size());
  const auto num_micro_batches = labels_of[0].size();
  double sum = 0.0, weighed = 0.0;
  int64_t count = 0;
  std::mutex mutex;
  run_ranks({.ranks = num_ranks}, [&](const World& world) {
    const auto& labels = labels_of[world.rank()];
    const auto weights = num_micro_batches == 1
                             ? std::vector{loss_weight(world.communicator(), labels[0])}
                             : loss_weights(world.communicator(), labels);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto losses = label_losses(world.rank(), static_cast<int>(i), labels[i]);
      sum += sum_of(losses);
      count += labels[i];
      if (labels[i] > 0) weighed += weights[i] * sum_of(losses) / static_cast<double>(labels[i]);
    }
  });
  const double average = weighed / static_cast<double>(labels_of.size() * num_micro_batches);
  EXPECT_NEAR(average, sum / static_cast<double>(count), 1e-12 * average);
}

TEST(LossWeight, MakesTheAverageTheMeanOverAllLabels) {
  expect_mean_over_all_labels({{5}});
  expect_mean_over_all_labels({{7}, {2}});
  expect_mean_over_all_labels({{1}, {8}, {0}});
  expect_mean_over_all_labels({{4}, {3}, {2}, {1}});
}

TEST(LossWeight, CoversAllMicroBatchesOfAStep) {
  expect_mean_over_all_labels({{7, 2, 1}});
  expect_mean_over_all_labels({{7, 2}, {1, 0}, {4, 9}});
}

TEST(LossWeight, IsOneWhereLabelsAreEven) {
  run_ranks({.ranks = 3},
            [](const World& world) { EXPECT_EQ(loss_weight(world.communicator(), 12), 1.0); });
}

TEST(LossWeight, RefusesABatchWithoutLabels) {
  run_ranks({.ranks = 2}, [](const World& world) {
    try {
      loss_weight(world.communicator(), 0);
      ADD_FAILURE() << "no Error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "loss weight: no rank has a label in this batch, so its loss has no mean; skip "
                   "the batch");
    }
  });
}

}  // namespace
}  // namespace fullshard::train
