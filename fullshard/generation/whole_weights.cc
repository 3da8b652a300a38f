// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/whole_weights.h"

#include <torch/nn/module.h>

namespace fullshard::generation {

WholeWeights::WholeWeights(ShardedModel& model) : scope_(model.gather_full()) {
  for (const auto& module : model.module().modules(/*include_self=*/true)) {
    auto* unit = dynamic_cast<nn::UnitState*>(module.get());
    if (unit == nullptr || unit->hooks() == nullptr) continue;
    hooks_.emplace_back(unit, unit->hooks());
    unit->set_hooks(nullptr);
  }
}

WholeWeights::~WholeWeights() { restore_hooks(); }

void WholeWeights::restore_hooks() {
  for (const auto& [unit, hooks] : hooks_) unit->set_hooks(hooks);
  hooks_.clear();
}

void WholeWeights::close() {
  restore_hooks();
  scope_.close();
}

}  // namespace fullshard::generation
