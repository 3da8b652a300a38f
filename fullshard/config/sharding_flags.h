// SPDX-License-Identifier: Apache-2.0
// --strategy, --zero-stage and --sharding-factor beside what a file says in its own words: a
// strategy, a stage, or whether parameters are released after forward.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/config/flags.h"

namespace fullshard::config {

// What the field calls the same: FULL_SHARD and stage 3, SHARD_GRAD_OP and 2, NO_SHARD and 0.
bool is_same_sharding(std::string_view strategy, int64_t stage);

// Into the Plan, or a problem where the Plan's file says something else. `value` is the flag's,
// checked.
void apply_strategy(Plan& plan, const FlagValue& flag, const std::string& strategy,
                    Problems& problems);
void apply_stage(Plan& plan, const FlagValue& flag, int64_t stage, Problems& problems);
void apply_factor(Plan& plan, const FlagValue& flag, int64_t factor, Problems& problems);

// The value as the file or flag says it that `origin` names; `fallback` where no key does.
std::string said_value(const Plan& plan, const Origin& origin, std::string fallback);

}  // namespace fullshard::config
