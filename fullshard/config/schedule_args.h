// SPDX-License-Identifier: Apache-2.0
// Arguments of the Trainer's schedules, as its lr_scheduler_kwargs names them.
#pragma once

#include <string>
#include <string_view>

#include "fullshard/config/plan_sections.h"

namespace fullshard::config {

// From "power=2,lr_end=1e-6" or a JSON object. The values are those that are given; which of them
// the schedule takes is checked by `type`. An Error of kind usage without the flag's name before
// it: "'powr' is no argument of polynomial; it takes lr_end, power".
TrainerScheduleArgs parse_schedule_args(std::string_view text, std::string_view type);

}  // namespace fullshard::config
