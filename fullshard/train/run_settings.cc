// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run_settings.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "fullshard/config/collective_names.h"
#include "fullshard/train/apply_plan.h"

namespace fullshard::train {
namespace {

// The name that DeepSpeed gives a job that has none names no folder in the run's own.
report::MonitorSettings monitor_of(const MonitorPlan& plan) {
  const bool is_named = !plan.output_path->empty() || plan.job_name.origin.is_explicit();
  return {.is_enabled = *plan.enabled,
          .output_path = *plan.output_path,
          .job_name = is_named ? *plan.job_name : ""};
}

CommsLogOptions comms_log_of(const CommsLoggerPlan& plan) {
  CommsLogOptions options{.is_enabled = *plan.enabled,
                          .is_verbose = *plan.verbose,
                          .names_callers = *plan.debug,
                          .logs_all = *plan.prof_all};
  for (const std::string& name : *plan.prof_ops) {
    if (const auto known = config::collective_name(name)) options.operations.push_back(*known);
  }
  return options;
}

}  // namespace

RunSettings run_settings_of(const Plan& plan) {
  const auto& gathers = plan.checkpoint.gather_16bit_weights;
  RunSettings settings;
  if (gathers.value) settings.saved_dtype = precision_of(plan).compute.value_or(at::kFloat);
  settings.withholds_model =
      plan.sharding.stage.value == 3 && gathers.origin.is_explicit() && !gathers.value;
  settings.is_node_local = plan.checkpoint.node_local.value;
  settings.tag_validation = tag_validation_of(plan.checkpoint.tag_validation.value);
  settings.saves_whole_weights = plan.checkpoint.state_dict_type.value == "FULL_STATE_DICT";
  settings.loads_fp32_weights = plan.checkpoint.load_from_fp32_weights.value;
  settings.drops_last_batch = plan.batch.drop_last.value;
  settings.records_phases = plan.logging.wall_clock_breakdown.value;
  settings.shows_memory = plan.logging.memory_breakdown.value;
  settings.steps_per_print = plan.logging.steps_per_print.value;
  settings.tensorboard = monitor_of(plan.logging.tensorboard);
  settings.csv_monitor = monitor_of(plan.logging.csv_monitor);
  settings.comms_log = comms_log_of(plan.logging.comms_logger);
  const FlopsProfilerPlan& flops = plan.logging.flops_profiler;
  settings.flops_profiler = {.is_enabled = *flops.enabled,
                             .step = *flops.profile_step,
                             .module_depth = *flops.module_depth,
                             .top_modules = *flops.top_modules,
                             .is_detailed = *flops.detailed,
                             .output_file = *flops.output_file};
  return settings;
}

Plan plan_of_run(Plan plan, const base::LauncherVariable& measured) {
  if (!measured) return plan;
  LoggingPlan& logging = plan.logging;
  logging.tensorboard.enabled = false;
  logging.csv_monitor.enabled = false;
  logging.comms_logger.enabled = false;
  logging.flops_profiler.enabled = false;
  const bool has_phases = *measured.text == base::LauncherEnvironment::kMeasuredPhases;
  if (has_phases) logging.wall_clock_breakdown = true;
  return plan;
}

void set_log_level(const Plan& plan) {
  const auto& level = plan.logging.log_level.value;
  if (level) spdlog::set_level(spdlog::level::from_str(*level));
}

}  // namespace fullshard::train
