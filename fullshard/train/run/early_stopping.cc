// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/early_stopping.h"

#include <fmt/format.h>

namespace fullshard::train {

BestEvaluation EarlyStoppingRule::add(const std::optional<BestEvaluation>& best, int64_t step,
                                      double loss) const {
  if (!best) return {.step = step, .loss = loss};
  BestEvaluation now = *best;
  const bool is_lower = loss < best->loss;
  const bool is_enough = is_lower && best->loss - loss > options_.threshold;
  now.evaluations_without = is_enough ? 0 : best->evaluations_without + 1;
  if (is_lower) {
    now.step = step;
    now.loss = loss;
  }
  return now;
}

std::string EarlyStoppingRule::reason(const BestEvaluation& best) const {
  return fmt::format(
      "the evaluation loss has not fallen by more than {} in {} evaluations; it was {:.6g} at step "
      "{}",
      options_.threshold, best.evaluations_without, best.loss, best.step);
}

}  // namespace fullshard::train
