// SPDX-License-Identifier: Apache-2.0
// How the library's other folders reach the engine behind a ShardedModel. Internal: users include
// fullshard.h, which does not have it, and see the model only.
#pragma once

#include "fullshard/engine/engine.h"
#include "fullshard/engine/sharded_model.h"

namespace fullshard::engine {

class EngineAccess {
 public:
  // Lives as long as the model or a copy of it.
  static Engine& of(const ShardedModel& model) { return *model.engine_; }
};

}  // namespace fullshard::engine
