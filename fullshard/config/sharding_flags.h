// SPDX-License-Identifier: Apache-2.0
// --strategy, --zero-stage and --sharding-factor combined with what a file sets by its own keys: a
// strategy, a stage, or whether parameters are released after forward.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/config/flags.h"
#include "fullshard/config/plan_sections.h"

namespace fullshard::config {

// The usual equivalents: FULL_SHARD and stage 3, SHARD_GRAD_OP and 2, NO_SHARD and 0.
bool is_same_sharding(std::string_view strategy, int64_t stage);

// True for FULL_SHARD and HYBRID_SHARD.
bool releases_after_forward(std::string_view strategy);

// FSDP 2's key is the strategy: true is FULL_SHARD, false SHARD_GRAD_OP.
bool agrees_with_release(std::string_view strategy, bool releases);

// The strategy in effect where no stage is set: FSDP 2's reshard_after_forward decides between two
// strategies, whatever the strategy is called.
Setting<std::string> strategy_in_effect(const ShardingPlan& sharding);

// Apply a flag's checked value to the Plan, or add a problem where the Plan's file contradicts it.
void apply_strategy(Plan& plan, const FlagValue& flag, const std::string& strategy,
                    Problems& problems);
void apply_stage(Plan& plan, const FlagValue& flag, int64_t stage, Problems& problems);
void apply_factor(Plan& plan, const FlagValue& flag, int64_t factor, Problems& problems);

// The value as the file or flag of `origin` wrote it; `fallback` where no key has it.
std::string said_value(const Plan& plan, const Origin& origin, std::string fallback);

}  // namespace fullshard::config
