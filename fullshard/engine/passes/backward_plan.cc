// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/backward_plan.h"

#include <map>
#include <set>
#include <span>

namespace fullshard::engine {
namespace {

using Event = ForwardLog::Event;
using Mark = BackwardStep::Mark;
using Entries = std::span<const ForwardLog::Entry>;

class Reversal {
 public:
  explicit Reversal(Entries log) {
    for (const auto& entry : log) num_starts_[entry.unit] += entry.event == Event::start;
    reverse(log);
  }

  std::vector<BackwardStep> steps() && { return std::move(steps_); }

 private:
  void reverse(Entries log) {
    for (size_t end = log.size(); end > 0; --end) {
      const auto& entry = log[end - 1];
      if (entry.event == Event::end) begin(entry.unit);
      if (entry.event == Event::start) finish(entry.unit);
      if (entry.event != Event::leave_recomputed) continue;
      const size_t first = beginning_of_call(log, end - 1);
      replay(log.subspan(first, end - 1 - first));
      end = first;
    }
  }

  void replay(Entries call) {
    for (const auto& entry : call) {
      if (entry.event == Event::start) begin(entry.unit);
    }
    reverse(call);
  }

  // Where the entries of the recomputed call begin that is left at `leave`.
  static size_t beginning_of_call(Entries log, size_t leave) {
    int depth = 1;
    size_t first = leave;
    while (first > 0 && depth > 0) {
      --first;
      if (log[first].event == Event::leave_recomputed) ++depth;
      if (log[first].event == Event::enter_recomputed) --depth;
    }
    return first + 1;
  }

  void begin(int unit) {
    if (begun_.insert(unit).second) steps_.push_back({Mark::begin, unit});
  }
  // Where its first call started.
  void finish(int unit) {
    begin(unit);
    if (--num_starts_[unit] == 0) steps_.push_back({Mark::end, unit});
  }

  std::map<int, int> num_starts_;
  std::set<int> begun_;
  std::vector<BackwardStep> steps_;
};

// Which units would be gathered at a point of the backward, if all ranks kept to the plan.
class GatheredUnits {
 public:
  GatheredUnits(const Schedule& schedule, std::vector<bool> is_live)
      : schedule_(schedule), is_live_(std::move(is_live)), is_ahead_(is_live_.size(), false) {
    for (size_t i = 0; i < is_live_.size(); ++i) live_ += is_live_[i] ? numel(i) : 0;
  }

  void begin(int unit) {
    gather(unit);
    if (!is_ahead_[unit]) return;
    is_ahead_[unit] = false;
    ahead_ -= numel(unit);
    --num_ahead_;
  }

  void end(int unit) {
    if (is_live_[unit]) live_ -= numel(unit);
    is_live_[unit] = false;
  }

  bool needs_gather(int unit) const { return !is_live_[unit] && numel(unit) > 0; }
  bool may_gather_ahead(int unit) const {
    return schedule_.may_prefetch(unit, num_ahead_, live_, ahead_);
  }

  void gather_ahead(int unit) {
    gather(unit);
    is_ahead_[unit] = true;
    ahead_ += numel(unit);
    ++num_ahead_;
  }

 private:
  int64_t numel(size_t unit) const { return schedule_.unit_numel(static_cast<int>(unit)); }

  void gather(int unit) {
    if (!is_live_[unit]) live_ += numel(unit);
    is_live_[unit] = true;
  }

  const Schedule& schedule_;
  std::vector<bool> is_live_;
  std::vector<bool> is_ahead_;  // of them: not yet used
  int64_t live_ = 0;
  int64_t ahead_ = 0;
  int num_ahead_ = 0;
};

std::vector<int> units_ahead(const std::vector<BackwardStep>& steps, size_t from,
                             GatheredUnits& gathered) {
  std::vector<int> units;
  for (size_t i = from; i < steps.size(); ++i) {
    const int unit = steps[i].unit;
    if (steps[i].mark != Mark::begin || !steps[i].gathers || !gathered.needs_gather(unit)) continue;
    if (!gathered.may_gather_ahead(unit)) break;
    gathered.gather_ahead(unit);
    units.push_back(unit);
  }
  return units;
}

}  // namespace

std::vector<BackwardStep> reverse_order(const std::vector<ForwardLog::Entry>& log) {
  return Reversal(log).steps();
}

void plan_gathers_ahead(std::vector<BackwardStep>& steps, const Schedule& schedule,
                        const std::vector<bool>& is_live) {
  const auto prefetch = schedule.backward_prefetch();
  if (prefetch == BackwardPrefetch::none) return;
  const Mark where = prefetch == BackwardPrefetch::pre ? Mark::begin : Mark::end;
  GatheredUnits gathered(schedule, is_live);
  for (size_t i = 0; i < steps.size(); ++i) {
    auto& step = steps[i];
    if (step.mark == Mark::end) gathered.end(step.unit);
    if (step.mark == Mark::begin && step.gathers) gathered.begin(step.unit);
    if (step.mark == where) step.ahead = units_ahead(steps, i + 1, gathered);
  }
}

}  // namespace fullshard::engine
