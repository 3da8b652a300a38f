// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/step_history.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "fullshard/base/error.h"

namespace fullshard::report {
namespace {

using Number = std::optional<double> (*)(const StepRecord&);

std::optional<double> finite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

constexpr Number kCharted[] = {
    [](const StepRecord& step) { return finite(step.loss); },
    [](const StepRecord& step) { return step.grad_norm ? finite(*step.grad_norm) : std::nullopt; },
    [](const StepRecord& step) { return finite(step.tokens_per_s); },
};

// The positions worth keeping of steps[from, to).
std::set<size_t> outstanding(const std::vector<StepRecord>& steps, size_t from, size_t to) {
  std::set<size_t> kept = {from};
  std::optional<size_t> evaluation, gap;
  for (size_t i = from; i < to; ++i) {
    if (steps[i].eval_loss) evaluation = i;
    if (!std::isfinite(steps[i].loss) && !gap) gap = i;
  }
  for (const auto& position : {evaluation, gap}) {
    if (position) kept.insert(*position);
  }
  for (const Number number : kCharted) {
    std::optional<size_t> least, greatest;
    for (size_t i = from; i < to; ++i) {
      const auto value = number(steps[i]);
      if (!value) continue;
      if (!least || *value < *number(steps[*least])) least = i;
      if (!greatest || *value > *number(steps[*greatest])) greatest = i;
    }
    if (least) kept.insert({*least, *greatest});
  }
  return kept;
}

}  // namespace

StepHistory::StepHistory(size_t limit) : limit_(limit) {
  check(limit >= 16, "step history: the limit is {}, expected 16 or more", limit);
}

void StepHistory::add(const StepRecord& record) {
  steps_.push_back(record);
  if (steps_.size() < 2 * limit_) return;
  thin();  // adds those that came since the last time
  while (steps_.size() > limit_) {
    width_ *= 2;
    thin();
  }
}

void StepHistory::thin() {
  std::vector<StepRecord> kept;
  for (size_t from = 0; from < steps_.size();) {
    size_t to = from;
    while (to < steps_.size() && steps_[to].step / width_ == steps_[from].step / width_) ++to;
    auto positions = outstanding(steps_, from, to);
    if (to == steps_.size()) positions.insert(to - 1);
    for (const size_t position : positions) kept.push_back(steps_[position]);
    from = to;
  }
  steps_ = std::move(kept);
}

}  // namespace fullshard::report
