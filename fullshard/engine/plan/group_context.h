// SPDX-License-Identifier: Apache-2.0
// What the groups of one model have in common; outlives them.
#pragma once

#include <memory>

#include "fullshard/comm/world/mesh.h"
#include "fullshard/engine/plan/counters.h"
#include "fullshard/engine/plan/draining.h"
#include "fullshard/engine/plan/tier_memory.h"
#include "fullshard/engine/plan/traffic.h"
#include "fullshard/memory/pool.h"

namespace fullshard::engine {

struct GroupContext {
  const Mesh* mesh = nullptr;
  const Traffic* traffic = nullptr;
  Draining* draining = nullptr;
  std::shared_ptr<memory::Pool> pool;  // of the device
  const TierMemory* tiers = nullptr;   // for what does not rest there
  ShardCounters* counters = nullptr;
  bool one_copy = false;  // ranks of a host share the gathered parameters
  bool contiguous_gradients = true;
  bool defers_reduction = false;  // inside no_sync
  bool over_ranks = true;         // else a reduction leaves every rank its own gradient
  bool takes_squares = false;     // sum squares while reducing: somebody asked for the norm before
};

}  // namespace fullshard::engine
