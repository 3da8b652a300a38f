#include "fullshard/checkpoint/round_masters.h"

#include "fullshard/shard/engine.h"
#include "fullshard/shard/new_values.h"

namespace fullshard {

void round_masters(ShardedModel& model) {
  auto& engine = model.engine();
  replace_values(engine, "round_masters", [&] {
    for (const auto& unit : engine.units()) {
      for (const auto& group : unit->groups()) {
        const at::Tensor master = group->master();
        master.copy_(master.to(group->spec().compute_dtype));
      }
    }
  });
}

}  // namespace fullshard
