// SPDX-License-Identifier: Apache-2.0
// How far a training run has come: what a checkpoint keeps beside tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/base/loss_scale_state.h"

namespace fullshard {

// Where the next batch begins. Steps take the same global batch whatever the number of ranks.
struct DataPosition {
  int64_t step = 0;
  int64_t micro_batch = 0;  // of that step
};

struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;
  int64_t evaluations_without = 0;  // a loss that was better by enough, until now
};

struct Progress {
  int64_t step = 0;         // steps done, skipped ones included
  int64_t num_skipped = 0;  // of them
  std::optional<int64_t> scheduler_steps = {};
  std::optional<LossScaleState> loss_scale = {};
  std::optional<DataPosition> data = {};
  std::optional<BestEvaluation> best = {};
  std::string extra = "{}";  // the caller's own: a JSON object
};

}  // namespace fullshard
