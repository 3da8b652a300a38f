// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/round_masters.h"

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"

namespace fullshard::checkpoint {

void round_masters(ShardedModel& model) {
  auto& engine = engine::EngineAccess::of(model);
  engine::replace_values(engine, "round_masters", [&] {
    for (const auto& unit : engine.units()) {
      for (const auto& group : unit->groups()) {
        const at::Tensor master = group->master();
        master.copy_(master.to(group->spec().compute_dtype));
      }
    }
  });
}

}  // namespace fullshard::checkpoint
