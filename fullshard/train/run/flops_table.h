// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's flops_profiler: parameters and FLOPs of a model and of its units, beside the time
// that a step took. Plain data in, text out: who counts is worker/flops_profile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/train/run_settings.h"

namespace fullshard::train {

// One micro-batch on one rank.
struct UnitFlops {
  std::string path{};  // empty: the root, with what no other unit holds
  std::string class_name{};
  int64_t parameters = 0;
  double forward = 0, backward = 0;
};

struct FlopsProfile {
  int64_t step = 0;
  int world_size = 1;
  int64_t micro_batch = 1;  // examples of a rank in one forward
  int64_t accumulation = 1;
  bool recomputes = false;         // the backward runs the forward again, and counts it
  std::vector<UnitFlops> units{};  // the root first
  // Seconds of the step, all micro-batches together, without those that it waited for other ranks.
  double forward_s = 0, backward_s = 0, optimizer_s = 0;
  double step_s = 0;  // of all
};

std::string flops_table(const FlopsProfile& profile, const FlopsProfilerOptions& options);

}  // namespace fullshard::train
