// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/new_values.h"

#include <ATen/core/grad_mode.h>

#include "fullshard/engine/storage/agreement.h"
#include "fullshard/engine/value_agreement.h"
#include "fullshard/engine/whole_masters.h"

namespace fullshard::engine {

void replace_values(Engine& engine, const std::string& what, const std::function<void()>& write) {
  at::NoGradGuard no_grad;
  engine.begin_change(what);
  const WholeMasters whole(engine);
  engine.set_has_values(false);
  throw_alike(engine.mesh().everyone().limited_by(TimeLimit::checkpoint), error_of(write), what);
  check_replicas_agree(engine, what);
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) engine.finish_group_update(*group);
  }
  engine.finish_update();
  engine.set_has_values(true);
}

}  // namespace fullshard::engine
