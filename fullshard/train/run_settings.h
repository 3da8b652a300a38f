// SPDX-License-Identifier: Apache-2.0
// What `train` takes of a Plan beside sharding, optimizer and schedule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/config/plan.h"

namespace fullshard::train {

struct RunSettings {
  at::ScalarType saved_dtype = at::kFloat;  // of model/
  // DeepSpeed's stage 3 with stage3_gather_16bit_weights_on_model_save false writes no whole model:
  // its checkpoint holds it.
  bool withholds_model = false;
  bool is_node_local = false;  // checkpoints
  TagValidation tag_validation = TagValidation::warn;
  bool saves_whole_weights = false;          // in checkpoints: FULL_STATE_DICT
  bool loads_fp32_weights = true;            // masters of a resumed checkpoint
  bool records_phases = false;               // wall_clock_breakdown
  bool shows_memory = false;                 // memory_breakdown
  std::optional<int64_t> steps_per_print{};  // absent: by the length of the run
};

RunSettings run_settings_of(const Plan& plan);

// Of what the library itself logs, in this process.
void set_log_level(const Plan& plan);

}  // namespace fullshard::train
