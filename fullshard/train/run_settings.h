// SPDX-License-Identifier: Apache-2.0
// What `train` takes of a Plan beside sharding, optimizer and schedule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/base/launcher_environment.h"
#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/config/plan.h"
#include "fullshard/report/monitor.h"

namespace fullshard::train {

// comms_logger (run/comms_log.h).
struct CommsLogOptions {
  bool is_enabled = false;
  bool is_verbose = false;     // a line for each call
  bool names_callers = false;  // who asked for it, as part of its name
  bool logs_all = true;
  std::vector<std::string> operations{};  // where not all: these

  bool operator==(const CommsLogOptions&) const = default;
};

// flops_profiler (run/flops_table.h).
struct FlopsProfilerOptions {
  bool is_enabled = false;
  int64_t step = 1;
  int64_t module_depth = -1;  // of the table by depth; -1: the deepest
  int64_t top_modules = 1;
  bool is_detailed = true;
  std::optional<std::string> output_file{};  // absent: the log

  bool operator==(const FlopsProfilerOptions&) const = default;
};

struct RunSettings {
  at::ScalarType saved_dtype = at::kFloat;  // of model/
  // DeepSpeed's stage 3 with stage3_gather_16bit_weights_on_model_save false writes no whole model:
  // its checkpoint holds it.
  bool withholds_model = false;
  bool is_node_local = false;  // checkpoints
  TagValidation tag_validation = TagValidation::warn;
  bool saves_whole_weights = false;          // in checkpoints: FULL_STATE_DICT
  bool loads_fp32_weights = true;            // masters of a resumed checkpoint
  bool drops_last_batch = false;             // of an epoch, where it is not full
  bool records_phases = false;               // wall_clock_breakdown
  bool shows_memory = false;                 // memory_breakdown
  std::optional<int64_t> steps_per_print{};  // absent: by the length of the run
  report::MonitorSettings tensorboard{};
  report::MonitorSettings csv_monitor{};
  CommsLogOptions comms_log{};
  FlopsProfilerOptions flops_profiler{};
};

RunSettings run_settings_of(const Plan& plan);

// The plan as it is, unless the run is only measured (LauncherEnvironment::measured). Monitors,
// profiler and comms logger are off then: their files are of the user's own runs. "phases" switches
// on wall_clock_breakdown, which not every family of files can say.
Plan plan_of_run(Plan plan, const base::LauncherVariable& measured);

// Of what the library itself logs, in this process.
void set_log_level(const Plan& plan);

}  // namespace fullshard::train
