#include "fullshard/shard/whole_masters.h"

#include <spdlog/spdlog.h>

#include <exception>

namespace fullshard {

WholeMasters::WholeMasters(Engine& engine) : engine_(engine) {
  for (auto* group : engine_.trainable_groups()) group->make_master_whole();
}

// A group that cannot be cut again stays whole: it takes more memory and is as right.
WholeMasters::~WholeMasters() {
  try {
    for (auto* group : engine_.trainable_groups()) group->halve_master();
  } catch (const std::exception& error) {
    spdlog::warn("masters stay whole: {}", error.what());
  }
}

}  // namespace fullshard
