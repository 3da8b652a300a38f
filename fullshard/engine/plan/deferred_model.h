// SPDX-License-Identifier: Apache-2.0
// What shard() does with a model that was built without memory (nn/deferred.h).
#pragma once

#include <string>

#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

// The first parameter that has no memory yet; empty: all have.
std::string first_deferred(const WrapPlan& plan);

// Buffers, and what ignored modules hold, stay whole on every rank: those that are deferred get
// memory in place, filled with zeros. The plan notes the buffers, whose values only a file can give
// now; not those of units when rank 0's are `taken` anyway.
void materialise_unsharded(WrapPlan& plan, bool taken, at::Device device);

}  // namespace fullshard::engine
