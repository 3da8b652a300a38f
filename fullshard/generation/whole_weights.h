// SPDX-License-Identifier: Apache-2.0
// Weights of a sharded model, gathered once for as long as text is generated: all of them, or those
// of some units, while the others are fetched for every pass.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fullshard/engine/gather_scope.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit_state.h"

namespace fullshard::generation {

// While it lives, the parameters of its units are whole on every rank. Where those are all units a
// forward of the model is no matter of ranks, and each makes as many as it likes; otherwise all
// ranks make the same number (PassVote). Made and closed by all ranks; who is done early waits in
// close() for the others, without a limit. The module outlives it.
class WholeWeights {
 public:
  // `units`: their paths, "" for the root; absent: all.
  explicit WholeWeights(ShardedModel& model,
                        const std::optional<std::vector<std::string>>& units = {});
  ~WholeWeights();
  WholeWeights(const WholeWeights&) = delete;
  WholeWeights& operator=(const WholeWeights&) = delete;

  void close();

 private:
  void take_hooks(const std::optional<std::vector<std::string>>& units);
  void restore_hooks();

  ShardedModel model_;
  std::optional<GatherScope> scope_;  // none without units
  // A unit's hooks would release its parameters after every forward.
  std::vector<std::pair<nn::UnitState*, nn::ForwardHooks*>> hooks_;
};

}  // namespace fullshard::generation
