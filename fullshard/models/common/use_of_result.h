// SPDX-License-Identifier: Apache-2.0
// What the last product of a layer is for.
#pragma once

#include "fullshard/nn/replayed_unit.h"
#include "fullshard/ops/products/result_use.h"

namespace fullshard::models {

// A layer that backward computes again needs what its products read, not what the last one gives.
inline ops::ResultUse use_of_result(const nn::UnitState& layer) {
  return nn::is_replayed(layer) ? ops::ResultUse::graph_only : ops::ResultUse::values;
}

}  // namespace fullshard::models
