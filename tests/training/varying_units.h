// SPDX-License-Identifier: Apache-2.0
// Blocks of which some take part in some steps only, as with LayerDrop, experts, or heads of
// several losses.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <string>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/optim/optimizer.h"

namespace fullshard::testing {

struct VaryingUnits {
  int steps = 9;
  int micro_batches = 1;
  bool skips_a_step = false;  // after its gradients were clipped
};

// Whole parameters after so many steps of AdamW, clipped without waiting for the norm.
std::map<std::string, at::Tensor> train_varying_units(const World& world,
                                                      const ShardOptions& options,
                                                      const VaryingUnits& training = {});

}  // namespace fullshard::testing
