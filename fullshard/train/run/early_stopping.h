// SPDX-License-Identifier: Apache-2.0
// Whether a run should end because its evaluation loss no longer falls.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/stored/training_progress.h"

namespace fullshard::train {

struct EarlyStoppingOptions {
  int64_t patience = 0;  // evaluations without a better loss; 0: the run never ends for it
  double threshold = 0;  // a loss is better when it is lower by more than this
};

// Counts as the Trainer's EarlyStoppingCallback does. What it knows is part of BestEvaluation, so
// that a resumed run counts on.
class EarlyStoppingRule {
 public:
  explicit EarlyStoppingRule(const EarlyStoppingOptions& options) : options_(options) {}

  // After an evaluation: the best so far, with this one counted.
  BestEvaluation add(const std::optional<BestEvaluation>& best, int64_t step, double loss) const;

  bool is_due(const BestEvaluation& best) const {
    return options_.patience > 0 && best.evaluations_without >= options_.patience;
  }
  // Why the run ends, for people.
  std::string reason(const BestEvaluation& best) const;

 private:
  EarlyStoppingOptions options_;
};

}  // namespace fullshard::train
