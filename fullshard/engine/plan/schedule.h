// SPDX-License-Identifier: Apache-2.0
// When units are gathered, kept and reduced: decided from the order in which they were seen to run.
// Integers only; units are named by their index. The drawing is in docs/schedule.md.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace fullshard {

enum class BackwardPrefetch { none, pre, post };

struct ScheduleOptions {
  bool reshard_after_forward = true;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::pre;
  // Not said: off on the CPUs of one host, where nothing runs beside computation; else see Ahead.
  std::optional<bool> forward_prefetch = {};
  int max_gathers_in_flight = 2;
  bool overlap_comm = true;  // off: every collective is waited for before computation goes on
  // For a model without backwards: forwards teach the order, as many units are fetched ahead as
  // gathers may be in flight, and the last units fetch the first ones of the next forward.
  bool repeats_forward = false;

  // DeepSpeed's limits, in elements; 0: none.
  int64_t prefetch_bucket_size = 0;  // fetched ahead; without it one unit
  int64_t max_live_parameters = 0;   // gathered at once
  int64_t max_reuse_distance = 0;    // a unit used again sooner than this is not released
};

// How much may be fetched ahead whatever the limits say. On an accelerator, and over a network, a
// gather that is issued when its unit begins is waited for in full, and the files that people have
// forbid more: Accelerate writes forward_prefetch false, DeepSpeed's bucket is smaller than a block
// of a large model. Their own programs overlap all the same.
enum class Ahead { within_limits, one_unit };

class Schedule {
 public:
  Schedule(const ScheduleOptions& options, std::vector<int64_t> unit_numel,
           Ahead ahead = Ahead::within_limits);

  // The order of a forward with gradients. A unit called several times starts where it was first
  // seen and ends where it was last seen.
  void note_start(int unit);
  void note_end(int unit);
  // A whole pass was seen: what the order tells may be relied on.
  void seal() { sealed_ = true; }

  // In backward too, whatever the file says.
  BackwardPrefetch backward_prefetch() const {
    const bool says_none = options_.backward_prefetch == BackwardPrefetch::none;
    return always_ahead_ == Ahead::one_unit && says_none ? BackwardPrefetch::pre
                                                         : options_.backward_prefetch;
  }
  bool prefetches_forward() const {
    return always_ahead_ == Ahead::one_unit || options_.repeats_forward ||
           options_.forward_prefetch.value_or(false);
  }
  // What is worth gathering while `unit` computes, nearest first.
  std::vector<int> next_in_forward(int unit) const;
  // Units in the order in which forwards began them; not those that none has called yet.
  const std::vector<int>& forward_order() const { return start_order_; }
  // Whether one more unit may be gathered ahead. `live` counts gathered elements, `ahead` those of
  // them that wait for their use.
  bool may_prefetch(int unit, int in_flight, int64_t live, int64_t ahead) const;

  // Whether a unit's parameters stay between its forward and its backward. The root (unit 0) ends
  // its forward last and begins its backward first: releasing it in between would be for nothing.
  // A head (`is_last`) comes right before it, and stays for the same reason as far as
  // max_live_parameters allows.
  bool keeps_after_forward(int unit, int64_t live, bool is_last = false) const;

  int max_reductions_in_flight() const { return options_.overlap_comm ? 1 : 0; }

  int64_t unit_numel(int unit) const { return numel_[unit]; }
  const ScheduleOptions& options() const { return options_; }

 private:
  int64_t reuse_distance(int unit) const;
  static std::vector<int> after(const std::vector<int>& order, int unit);

  ScheduleOptions options_;
  std::vector<int64_t> numel_;
  Ahead always_ahead_;
  std::vector<int> start_order_;
  std::vector<int> end_order_;
  bool sealed_ = false;
};

}  // namespace fullshard
