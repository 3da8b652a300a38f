// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/class_scores.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/stack.h>

namespace fullshard::train {

at::Tensor class_counts(const at::Tensor& logits, const at::Tensor& labels) {
  const int64_t num_classes = logits.size(-1);
  const auto flat = labels.reshape({-1}).cpu();
  const auto predicted = logits.reshape({-1, num_classes}).argmax(-1).cpu();
  const auto is_asked = flat.ne(-100);
  const auto count = [&](const at::Tensor& classes) {
    return at::bincount(classes, {}, num_classes).to(at::kDouble);
  };
  const auto wanted = flat.masked_select(is_asked), given = predicted.masked_select(is_asked);
  return at::stack({count(wanted.masked_select(wanted.eq(given))), count(given), count(wanted)});
}

ClassScores class_scores(const at::Tensor& counts) {
  const auto right = counts[0], predicted = counts[1], labelled = counts[2];
  const auto both = predicted + labelled;
  const auto f1 = (2 * right / both).masked_fill(both.eq(0), 0);
  ClassScores scores;
  scores.accuracy = (right.sum() / labelled.sum()).item<double>();
  scores.f1 = counts.size(1) == 2 ? f1[1].item<double>() : f1.mean().item<double>();
  return scores;
}

}  // namespace fullshard::train
