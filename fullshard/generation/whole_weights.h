// SPDX-License-Identifier: Apache-2.0
// Weights of a sharded model, gathered once for as long as text is generated.
#pragma once

#include <utility>
#include <vector>

#include "fullshard/engine/gather_scope.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit_state.h"

namespace fullshard::generation {

// While it lives, the parameters are whole on every rank and a forward of the model is no matter of
// ranks: each makes as many as it likes. Made and closed by all ranks; who is done early waits in
// close() for the others, without a limit. The module outlives it.
class WholeWeights {
 public:
  explicit WholeWeights(ShardedModel& model);
  ~WholeWeights();
  WholeWeights(const WholeWeights&) = delete;
  WholeWeights& operator=(const WholeWeights&) = delete;

  void close();

 private:
  void restore_hooks();

  GatherScope scope_;
  // A unit's hooks would release its parameters after every forward.
  std::vector<std::pair<nn::UnitState*, nn::ForwardHooks*>> hooks_;
};

}  // namespace fullshard::generation
