// SPDX-License-Identifier: Apache-2.0
// A torch optimizer of the user's own beside a configuration file:
//   PieceParameters pieces = piece_parameters(sharded, plan);
//   torch::optim::SGD optimizer(pieces.tensors(), options);
//   pieces.step(optimizer);
#pragma once

#include "fullshard/config/plan.h"
#include "fullshard/optim/torch/foreign_optimizer.h"
#include "fullshard/optim/torch/torch_optimizer.h"

namespace fullshard {

// What the plan says of such optimizers; strategies other than ZeRO's stages allow any.
inline ForeignOptimizerRules foreign_optimizer_rules(const Plan& plan) {
  return {.zero_allow_untested_optimizer = *plan.optimizer.allow_untested,
          .zero_force_ds_cpu_optimizer = *plan.optimizer.force_cpu_optimizer,
          .offload = *plan.offload.optimizer.device != "none",
          .stage = static_cast<int>(plan.sharding.stage->value_or(0))};
}

// The pieces, over which only an optimizer that the plan allows may step: the error names the key
// that would allow it.
inline PieceParameters piece_parameters(const ShardedModel& model, const Plan& plan) {
  return PieceParameters(model, foreign_optimizer_rules(plan));
}

}  // namespace fullshard
