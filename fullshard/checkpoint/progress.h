// How far a training run has come: what a checkpoint keeps beside tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/optim/loss_scaler.h"
#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/stepper.h"

namespace fullshard {

// Where the next batch begins. Steps take the same global batch whatever the number of ranks.
struct DataPosition {
  int64_t step = 0;
  int64_t micro_batch = 0;  // of that step
};

struct BestEvaluation {
  int64_t step = 0;
  double loss = 0;
};

struct Progress {
  int64_t step = 0;         // steps done, skipped ones included
  int64_t num_skipped = 0;  // of them
  std::optional<int64_t> scheduler_steps = {};
  std::optional<LossScaler::State> loss_scale = {};
  std::optional<DataPosition> data = {};
  std::optional<BestEvaluation> best = {};
  std::string extra = "{}";  // the caller's own: a JSON object
};

// Of a training loop; data, best and extra are the caller's to fill in. `scheduler` may be null.
Progress progress_of(const Stepper& stepper, const LrScheduler* scheduler);
// The other way. A schedule whose place was not saved is an error; so is one that was saved and is
// not there. A fixed loss scale stays as it was configured.
void restore_progress(const Progress& progress, Stepper& stepper, LrScheduler* scheduler);

}  // namespace fullshard
