// SPDX-License-Identifier: Apache-2.0
// What a checkpoint holds of an optimizer, whichever kind it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fullshard/optim/optimizer.h"

namespace fullshard::optim {

// Counts of one parameter, as "step"; stored once, whatever the number of ranks.
using StateCounts = std::map<std::string, int64_t>;

struct OptimizerStates {
  std::string name = {};                // of the optimizer
  std::vector<std::string> names = {};  // of its states
  // [group of trained parameters][state]: 1-D, shard_numel(group) elements.
  std::vector<std::vector<at::Tensor>> values = {};
  int64_t num_steps = 0;
  std::vector<double> lrs = {};       // one, or one of each of its groups of parameters
  std::vector<double> base_lrs = {};  // that schedules multiply; empty: not known
  std::optional<double> momentum = {};
  std::optional<double> beta2 = {};
  // By the parameter's name, of those that this rank has pieces of. Only optimizers that count for
  // each parameter have them; a parameter that is not there has no state yet.
  std::map<std::string, StateCounts> counts = {};
};

// Shares the tensors of the model's optimizer.
OptimizerStates states_of(const ShardedModel& model, const Optimizer& optimizer);

}  // namespace fullshard::optim
