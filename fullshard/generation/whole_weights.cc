// SPDX-License-Identifier: Apache-2.0
#include "fullshard/generation/whole_weights.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "fullshard/engine/engine_access.h"

namespace fullshard::generation {

WholeWeights::WholeWeights(ShardedModel& model,
                           const std::optional<std::vector<std::string>>& units)
    : model_(model) {
  if (units && units->empty()) return;
  scope_.emplace(model.gather_full({.units = units.value_or(std::vector<std::string>())}));
  take_hooks(units);
}

void WholeWeights::take_hooks(const std::optional<std::vector<std::string>>& units) {
  for (const auto& entry : model_.module().named_modules("", /*include_self=*/true)) {
    if (units && std::ranges::find(*units, entry.key()) == units->end()) continue;
    auto* unit = dynamic_cast<nn::UnitState*>(entry.value().get());
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
  if (scope_) scope_->close();
  // What was fetched ahead of a pass that does not come.
  engine::EngineAccess::of(model_).release_all();
}

}  // namespace fullshard::generation
