// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/non_finite_master.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "fullshard/engine/engine.h"
#include "fullshard/tensor/non_finite.h"

namespace fullshard::engine {

std::string first_non_finite_master(const Engine& engine) {
  std::vector<std::string> names;
  std::vector<bool> are_bad;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) {
      const size_t first = names.size();
      for (const auto& slot : group->layout().slots()) names.push_back(slot.name);
      are_bad.resize(names.size(), false);
      for (const auto& piece : group->pieces()) {
        if (tensor::has_non_finite(group->master(piece)))
          are_bad[first + static_cast<size_t>(piece.slot)] = true;
      }
    }
  }
  const auto own = std::ranges::find(are_bad, true) - are_bad.begin();
  auto least = at::full({1}, static_cast<int64_t>(own), at::TensorOptions().dtype(at::kLong));
  engine.mesh().everyone().all_reduce(least, ReduceOp::min, "weights that are not finite").wait();
  const auto found = static_cast<size_t>(least.item<int64_t>());
  return found < names.size() ? names[found] : std::string();
}

}  // namespace fullshard::engine
