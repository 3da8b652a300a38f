// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/class_scores.h"

#include <ATen/ops/one_hot.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

at::Tensor counted(const std::vector<int64_t>& predicted, const std::vector<int64_t>& labels,
                   int64_t num_classes) {
  return class_counts(at::one_hot(at::tensor(predicted), num_classes).to(at::kFloat),
                      at::tensor(labels));
}

TEST(ClassScores, OfTwoClassesAreThoseOfTheSecond) {
  // Class 1: 2 right of 3 predicted and 4 there.
  const ClassScores scores = class_scores(counted({1, 1, 1, 0, 0, 0}, {1, 1, 0, 1, 1, 0}, 2));
  EXPECT_DOUBLE_EQ(scores.accuracy, 3.0 / 6);
  EXPECT_DOUBLE_EQ(scores.f1, 2 * 2.0 / (3 + 4));
}

TEST(ClassScores, OfMoreAreMeansOverClasses) {
  // 0: 1 of 1 and 2; 1: 1 of 2 and 1; 2: 0 of 0 and 0.
  const ClassScores scores = class_scores(counted({0, 1, 1}, {0, 0, 1}, 3));
  EXPECT_DOUBLE_EQ(scores.accuracy, 2.0 / 3);
  EXPECT_DOUBLE_EQ(scores.f1, (2.0 / 3 + 2.0 / 3 + 0) / 3);
}

TEST(ClassScores, AddUpAndPassOverRowsWithoutALabel) {
  const auto both = counted({1, 0}, {1, 1}, 2) + counted({1, 1}, {0, -100}, 2);
  EXPECT_DOUBLE_EQ(class_scores(both).accuracy, 1.0 / 3);
  EXPECT_DOUBLE_EQ(class_scores(both).f1, 2 * 1.0 / (2 + 2));
}

}  // namespace
}  // namespace fullshard::train
