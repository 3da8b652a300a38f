// SPDX-License-Identifier: Apache-2.0
// What is asked for of one group: its parameters, their dtypes and placements. Plain data.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "fullshard/engine/plan/sharding.h"

namespace fullshard::engine {

// One parameter with all the names that the module tree gives it (tied weights have several).
struct NamedParameter {
  std::vector<std::string> names;
  at::Tensor tensor;
};

struct GroupSpec {
  std::string unit;  // path of the unit's module, "" for the root
  std::vector<NamedParameter> parameters;
  at::ScalarType compute_dtype = at::kFloat;
  at::ScalarType master_dtype = at::kFloat;
  at::ScalarType reduce_dtype = at::kFloat;
  at::ScalarType gradient_dtype = at::kFloat;
  bool trainable = true;
  Sharding sharding;
  // Masters are kept as what computation sees and the rest of them, where dtypes allow it.
  bool in_halves = false;
  // Optimizer states, and the lower halves of masters, rest in host memory.
  bool states_on_host = false;
};

}  // namespace fullshard::engine
