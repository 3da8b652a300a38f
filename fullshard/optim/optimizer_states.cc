// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/optimizer_states.h"

namespace fullshard::optim {

OptimizerStates states_of(const ShardedModel& model, const Optimizer& optimizer) {
  OptimizerStates states{.name = optimizer.name(), .names = optimizer.state_names()};
  for (int group = 0; group < model.num_groups(); ++group) {
    states.values.emplace_back();
    for (size_t k = 0; k < states.names.size(); ++k) {
      states.values.back().push_back(optimizer.state(group, static_cast<int>(k)));
    }
  }
  states.num_steps = optimizer.num_steps();
  states.lrs = {optimizer.lr()};
  states.base_lrs = {optimizer.base_lr()};
  if (optimizer.has_momentum()) states.momentum = optimizer.momentum();
  if (optimizer.has_beta2()) states.beta2 = optimizer.beta2();
  return states;
}

}  // namespace fullshard::optim
