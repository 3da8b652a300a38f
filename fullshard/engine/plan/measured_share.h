// SPDX-License-Identifier: Apache-2.0
// Where states in host memory are updated when nobody said: as the bus and host memory were
// measured.
#pragma once

#include "fullshard/comm/world/world.h"
#include "fullshard/tiers/tier_options.h"

namespace fullshard::engine {

// Collective. Sets host_share where `stepping` is automatic and an accelerator's states rest in
// host memory, and says so with both figures; all ranks measure at once and take the slowest.
tiers::TierOptions with_measured_share(tiers::TierOptions options, const World& world);

}  // namespace fullshard::engine
