// SPDX-License-Identifier: Apache-2.0
// The progress of a training run: what a checkpoint stores in addition to tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/loss_scale_state.h"

namespace fullshard {

// The next example, so that steps of another size continue there, and what its number depends on.
struct DataPlace {
  int64_t epoch = 0;
  int64_t example = 0;  // its place in the epoch
  int64_t num_examples = 0;
  std::string order = {};  // shuffled or sequential
  uint64_t seed = 0;
  // For mixed data sets: share and size of each; empty: there is only one. Nothing if a checkpoint
  // does not store it, as older ones.
  std::optional<std::string> mixture = {};

  bool operator==(const DataPlace&) const = default;
};

// Where the next batch begins.
struct DataPosition {
  int64_t step = 0;
  int64_t micro_batch = 0;              // of that step
  std::optional<DataPlace> place = {};  // if the loop stores it
};

struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;
  int64_t evaluations_without = 0;  // since the loss last improved by enough
};

struct Progress {
  int64_t step = 0;         // steps done, skipped ones included
  int64_t num_skipped = 0;  // of them
  std::optional<int64_t> scheduler_steps = {};
  std::vector<double> base_lrs = {};  // multiplied by the schedule; empty: unknown
  std::optional<LossScaleState> loss_scale = {};
  std::optional<DataPosition> data = {};
  std::optional<BestEvaluation> best = {};
  std::string extra = "{}";  // the caller's own: a JSON object
};

}  // namespace fullshard
