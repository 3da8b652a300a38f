// SPDX-License-Identifier: Apache-2.0
// How often a classifier is right.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace fullshard::train {

struct ClassScores {
  double accuracy = 0;
  double f1 = 0;  // of class 1 where there are two, else the mean over the classes
};

// Counts by class: right ones, predictions, labels; [3, classes] of doubles on the CPU. They add up
// over batches and ranks. Rows labelled -100 do not count.
at::Tensor class_counts(const at::Tensor& logits, const at::Tensor& labels);

// A class that nobody predicts and that no row has counts as 0 in the mean, as scikit-learn's does.
ClassScores class_scores(const at::Tensor& counts);

}  // namespace fullshard::train
