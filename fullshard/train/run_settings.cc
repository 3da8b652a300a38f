// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run_settings.h"

#include <spdlog/spdlog.h>

#include "fullshard/train/apply_plan.h"

namespace fullshard::train {

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
  settings.records_phases = plan.logging.wall_clock_breakdown.value;
  settings.shows_memory = plan.logging.memory_breakdown.value;
  settings.steps_per_print = plan.logging.steps_per_print.value;
  return settings;
}

void set_log_level(const Plan& plan) {
  const auto& level = plan.logging.log_level.value;
  if (level) spdlog::set_level(spdlog::level::from_str(*level));
}

}  // namespace fullshard::train
