// SPDX-License-Identifier: Apache-2.0
// The FLOPs of a run's units, for flops_profiler. On a CPU the operators of the profiled step are
// counted as they run. On a GPU, whose kernels are partly our own, the engine makes a step of the
// same model without memory before the run begins, as `simulate` does, and what would run is
// counted.
#pragma once

#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/report/records/step_record.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/run/flops_table.h"
#include "fullshard/train/run/operator_flops.h"

namespace fullshard::worker {

// For one rank, and one step.
class FlopsProfiler {
 public:
  FlopsProfiler(const RunOptions& options, const ModelSource& source, const Plan& plan,
                const ShardedModel& sharded);

  // Call before and after the step.
  void begin() { operators_.begin(); }
  void end() { operators_.end(); }
  // The profile with the times of that step, which must have phases.
  train::FlopsProfile profile_of(const StepRecord& step) const;

 private:
  train::FlopsProfile profile_;
  bool counts_operators_;
  train::OperatorFlops operators_;
};

}  // namespace fullshard::worker
