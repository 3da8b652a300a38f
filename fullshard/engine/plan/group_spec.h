// SPDX-License-Identifier: Apache-2.0
// What is asked for of one group: its parameters, their dtypes and placements. Plain data.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <string>
#include <vector>

#include "fullshard/engine/plan/layout.h"
#include "fullshard/engine/plan/sharding.h"
#include "fullshard/tiers/residence.h"

namespace fullshard::engine {

inline int64_t element_bytes(at::ScalarType dtype) {
  return static_cast<int64_t>(c10::elementSize(dtype));
}

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
  bool is_persistent = false;  // too small to be released: whole on every rank
  tiers::GroupResidence residence{};
};

// Where its parameters lie in the flat buffer, and how that is cut into shards.
Layout layout_of(const GroupSpec& spec, int num_shards);

}  // namespace fullshard::engine
