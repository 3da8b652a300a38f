// SPDX-License-Identifier: Apache-2.0
// Settings that disagree, and settings that are accepted but change nothing here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "fullshard/config/plan.h"

namespace fullshard::config {

// Adds every disagreement to `problems`. Without ranks or a device, what depends on them is not
// checked.
void check_plan(const Plan& plan, std::optional<int64_t> ranks,
                const std::optional<std::string>& device, Problems& problems);

// "1, 2, 4", for messages.
std::string divisors_of_ranks(int64_t ranks);

// Warns about settings that are accepted but have no effect on that device.
void note_without_effect(const Plan& plan, const std::optional<std::string>& device,
                         Problems& problems);

}  // namespace fullshard::config
