// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/schedule.h"

#include <algorithm>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

void append_once(std::vector<int>& order, int unit) {
  if (std::find(order.begin(), order.end(), unit) == order.end()) order.push_back(unit);
}

}  // namespace

Schedule::Schedule(const ScheduleOptions& options, std::vector<int64_t> unit_numel, Ahead ahead)
    : options_(options), numel_(std::move(unit_numel)), always_ahead_(ahead) {
  check(options.max_gathers_in_flight >= 1,
        "max_gathers_in_flight is {}, expected at least 1: a unit could never be gathered",
        options.max_gathers_in_flight);
}

void Schedule::note_start(int unit) { append_once(start_order_, unit); }

void Schedule::note_end(int unit) {
  std::erase(end_order_, unit);
  end_order_.push_back(unit);
}

std::vector<int> Schedule::after(const std::vector<int>& order, int unit) {
  const auto found = std::find(order.begin(), order.end(), unit);
  return found == order.end() ? std::vector<int>() : std::vector<int>(found + 1, order.end());
}

std::vector<int> Schedule::next_in_forward(int unit) const {
  auto next = after(start_order_, unit);
  if (!options_.repeats_forward) return next;
  for (const int first : start_order_) {
    if (first == unit) break;
    next.push_back(first);
  }
  return next;
}

bool Schedule::may_prefetch(int unit, int in_flight, int64_t live, int64_t ahead) const {
  if (!options_.overlap_comm || in_flight >= options_.max_gathers_in_flight) return false;
  if (always_ahead_ == Ahead::one_unit && ahead == 0) return true;
  const int64_t numel = numel_[unit];
  if (options_.max_live_parameters > 0 && live + numel > options_.max_live_parameters) return false;
  if (options_.repeats_forward) return true;
  if (options_.prefetch_bucket_size > 0) return ahead + numel <= options_.prefetch_bucket_size;
  return ahead == 0;
}

int64_t Schedule::reuse_distance(int unit) const {
  int64_t between = 0;
  for (const int later : after(end_order_, unit)) between += 2 * numel_[later];
  return between;
}

bool Schedule::keeps_after_forward(int unit, int64_t live, bool is_last) const {
  if (unit == 0) return true;
  if (options_.max_live_parameters > 0 && live > options_.max_live_parameters) return false;
  if (is_last || !options_.reshard_after_forward) return true;
  return sealed_ && reuse_distance(unit) < options_.max_reuse_distance;
}

}  // namespace fullshard
