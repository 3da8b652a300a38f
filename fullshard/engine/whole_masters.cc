// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/whole_masters.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace fullshard::engine {

WholeMasters::WholeMasters(Engine& engine) : engine_(engine) {
  engine_.settle_updates();
  engine_.settle_readers();
  for (auto* group : engine_.trainable_groups()) group->make_master_whole();
}

// A group that cannot be cut again stays whole: it takes more memory and is as right.
WholeMasters::~WholeMasters() {
  try {
    for (auto* group : engine_.trainable_groups()) group->rest_master();
  } catch (const std::exception& error) {
    spdlog::warn("masters stay whole: {}", error.what());
  }
}

}  // namespace fullshard::engine
