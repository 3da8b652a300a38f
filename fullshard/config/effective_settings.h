// SPDX-License-Identifier: Apache-2.0
// What a run of `train` does, as a table of its flags: each with the value in effect, whether it
// comes from a file of any family, a flag or a default.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/config/plan.h"
#include "fullshard/config/run_options.h"

namespace fullshard::config {

struct EffectiveSetting {
  std::string flag{};
  std::string value{};   // as JSON
  std::string origin{};  // as Origin::text()
};

// `is_given` tells whether a flag without a key in configurations was given.
std::vector<EffectiveSetting> effective_settings(
    const Plan& plan, const RunOptions& options, int64_t ranks,
    const std::function<bool(std::string_view flag)>& is_given);

// An object of key → {"value", "origin", "effect"}, with these added to
// what Explanation::json() gives.
std::string with_settings(const std::string& configuration,
                          const std::vector<EffectiveSetting>& settings);

// A line for each, in columns.
std::string settings_text(const std::vector<EffectiveSetting>& settings);

}  // namespace fullshard::config
