// SPDX-License-Identifier: Apache-2.0
// Walks through the plan of one backward. What this rank's autograd reports only decides how soon a
// step is taken, never in which order: a unit that it has no use for is gathered in its turn all
// the same, and one whose gradients do not all come is reduced when a later unit begins. So ranks
// whose graphs differ issue the same collectives, and none waits for another in vain.
#pragma once

#include <functional>
#include <vector>

#include "fullshard/engine/passes/backward_plan.h"

namespace fullshard::engine {

class BackwardPass {
 public:
  struct Actions {
    std::function<void(int unit)> pass_over;     // its turn to be gathered, without a use here
    std::function<void(int unit)> gather_ahead;  // it will be used soon
    std::function<void(int unit)> end;           // it may be released and reduced
  };

  explicit BackwardPass(Actions actions) : actions_(std::move(actions)) {}

  void open(std::vector<BackwardStep> steps, int num_units);

  // This rank begins the unit's backward: everything before is over. The caller gathers the unit,
  // and then calls gather_ahead.
  void begin(int unit);
  void gather_ahead(int unit);
  // All gradients of the unit are in: it ends as soon as everything before has.
  void mark_ready(int unit);
  // Takes what is left.
  void finish();

 private:
  void take(BackwardStep& step);
  void gather_once(BackwardStep& step);

  Actions actions_;
  std::vector<BackwardStep> steps_;
  std::vector<int> begins_at_;  // by unit; -1: not in the plan
  std::vector<bool> is_ready_;
  size_t next_ = 0;
};

}  // namespace fullshard::engine
