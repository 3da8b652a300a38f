// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/backward_pass.h"

#include <utility>

namespace fullshard::engine {

void BackwardPass::open(std::vector<BackwardStep> steps, int num_units) {
  steps_ = std::move(steps);
  next_ = 0;
  is_ready_.assign(num_units, false);
  begins_at_.assign(num_units, -1);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].mark == BackwardStep::Mark::begin)
      begins_at_[steps_[i].unit] = static_cast<int>(i);
  }
}

void BackwardPass::take(BackwardStep& step) {
  step.mark == BackwardStep::Mark::begin ? actions_.pass_over(step.unit) : actions_.end(step.unit);
  gather_once(step);
}

// A unit may begin again after its turn.
void BackwardPass::gather_once(BackwardStep& step) {
  for (const int unit : std::exchange(step.ahead, {})) actions_.gather_ahead(unit);
}

void BackwardPass::begin(int unit) {
  const int position = begins_at_[unit];
  if (position < static_cast<int>(next_)) return;
  while (static_cast<int>(next_) < position) take(steps_[next_++]);
  ++next_;
}

void BackwardPass::gather_ahead(int unit) {
  const int position = begins_at_[unit];
  if (position >= 0) gather_once(steps_[position]);
}

void BackwardPass::mark_ready(int unit) {
  is_ready_[unit] = true;
  while (next_ < steps_.size() && steps_[next_].mark == BackwardStep::Mark::end &&
         is_ready_[steps_[next_].unit]) {
    take(steps_[next_++]);
  }
}

void BackwardPass::finish() {
  while (next_ < steps_.size()) take(steps_[next_++]);
}

}  // namespace fullshard::engine
