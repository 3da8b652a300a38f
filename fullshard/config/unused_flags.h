// SPDX-License-Identifier: Apache-2.0
// Flags for keys of a configuration that have no effect together with the rest of the Plan.
#pragma once

#include <span>
#include <string_view>

#include "fullshard/config/flags.h"
#include "fullshard/config/plan_sections.h"

namespace fullshard::config {

// "betas", "eps": whether DeepSpeed's table gives the optimizer this parameter.
bool optimizer_takes(const OptimizerPlan& optimizer, std::string_view parameter);

// "--adam-beta1: has no effect with the optimizer SGD": a warning for each of them.
void note_unused_flags(const Plan& plan, std::span<const FlagValue> flags, Problems& problems);

}  // namespace fullshard::config
