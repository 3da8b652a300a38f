// SPDX-License-Identifier: Apache-2.0
// What tests of masters in halves have in common.
#pragma once

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"

namespace fullshard::testing {

// bf16 with fp32 masters, which are in halves where nothing is shared with other ranks.
inline ShardOptions halves_options(int stage, bool in_halves) {
  ShardOptions options;
  options.sharding.zero_stage = stage;
  options.param_dtype = at::kBFloat16;
  options.master_in_halves = in_halves;
  options.share_host_copy = false;
  return options;
}

inline bool are_in_halves(const ShardedModel& sharded) {
  for (const auto* group : engine::EngineAccess::of(sharded).trainable_groups()) {
    if (!group->is_in_halves()) return false;
  }
  return true;
}

}  // namespace fullshard::testing
