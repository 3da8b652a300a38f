// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's OneCycle and LRRangeTest, with its keys, defaults and quirks (0.19.8).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard {

// Up from cycle_min_lr to cycle_max_lr over the first half, down again over the second, then
// cycle_min_lr / (1 + decay_lr_rate * steps after the cycle / decay_step_size). The momentum moves
// the other way, and then cycle_max_mom * (1 + decay_mom_rate * ...). Quirks: step 0 has
// cycle_min_mom although the cycle starts from cycle_max_mom; beta2 becomes 0.99.
struct OneCycleOptions {
  std::optional<double> cycle_min_lr = {};  // required
  std::optional<double> cycle_max_lr = {};  // required
  double decay_lr_rate = 0.0;
  int64_t cycle_first_step_size = 2000;
  std::optional<int64_t> cycle_second_step_size = {};  // absent: as the first
  int64_t cycle_first_stair_count = 0;                 // 0: no stairs
  std::optional<int64_t> cycle_second_stair_count = {};
  int64_t decay_step_size = 0;  // 0: no decay
  bool cycle_momentum = true;
  double cycle_min_mom = 0.8;
  double cycle_max_mom = 0.9;
  double decay_mom_rate = 0.0;
  // Of the run: a momentum that leaves [0, 1) in one of them is an error at once. Absent: it is one
  // in the step that it happens in.
  std::optional<int64_t> total_num_steps = {};
};

// min_lr * (1 + step_rate * step / step_size), with whole intervals only when staircase.
struct LrRangeTestOptions {
  double lr_range_test_min_lr = 1e-3;
  int64_t lr_range_test_step_size = 2000;
  double lr_range_test_step_rate = 1.0;
  bool lr_range_test_staircase = false;
};

std::unique_ptr<LrSchedule> make_one_cycle(const OneCycleOptions& options);
std::unique_ptr<LrSchedule> make_lr_range_test(const LrRangeTestOptions& options = {});

}  // namespace fullshard
