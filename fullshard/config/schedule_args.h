// SPDX-License-Identifier: Apache-2.0
// Arguments of the Trainer's schedules, as its lr_scheduler_kwargs names them.
#pragma once

#include <string>
#include <string_view>

#include "fullshard/config/plan_sections.h"

namespace fullshard::config {

// Parses "power=2,lr_end=1e-6" or a JSON object and checks that the schedule `type` takes each of
// the arguments. Throws an Error of kind usage without the flag's name before it: "'powr' is not an
// argument of polynomial; it takes power, lr_end".
TrainerScheduleArgs parse_schedule_args(std::string_view text, std::string_view type);

}  // namespace fullshard::config
