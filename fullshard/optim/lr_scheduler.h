// SPDX-License-Identifier: Apache-2.0
// Joins a schedule to an optimizer:
//   LrScheduler scheduler(make_linear_schedule({.num_training_steps = 1000}), optimizer);
//   optimizer.step();  scheduler.step();
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/optim/lr_target.h"
#include "fullshard/optim/schedules/lr_schedule.h"

namespace fullshard {

// Belongs to one rank and is called from the thread that steps; the optimizer must outlive it.
// Skip step() when the optimizer's step was skipped (an overflow), as DeepSpeed does.
class LrScheduler {
 public:
  // Remembers the optimizer's base rates, which relative schedules multiply, and sets those of step
  // 0. An optimizer of ours keeps its own (Optimizer::base_lr), so that this may be before or after
  // a checkpoint is loaded; one of torch's keeps none, and gets those of the checkpoint back in
  // restore().
  LrScheduler(std::unique_ptr<LrSchedule> schedule, std::unique_ptr<RateTarget> target);
  LrScheduler(std::unique_ptr<LrSchedule> schedule, Optimizer& optimizer);
  LrScheduler(std::unique_ptr<LrSchedule> schedule, torch::optim::Optimizer& optimizer);

  // Sets the rates of the next optimizer step.
  void step();

  // The rates that the next optimizer step uses; with several groups, those of one.
  Rates rates(int group = 0) const;
  const LrSchedule& schedule() const { return *schedule_; }

  // The whole state. restore() sets the rates that held when it was saved; `base_lrs` count, where
  // there are as many as groups, of an optimizer that keeps none itself.
  int64_t num_steps() const { return num_steps_; }
  const std::vector<double>& base_lrs() const { return base_lrs_; }
  void restore(int64_t num_steps, const std::vector<double>& base_lrs = {});

  // The schedule's, and what of it the optimizer cannot take.
  std::vector<std::string> warnings() const;

 private:
  void apply();

  std::unique_ptr<LrSchedule> schedule_;
  std::unique_ptr<RateTarget> target_;
  std::vector<double> base_lrs_;  // per group
  int64_t num_steps_ = 0;
};

}  // namespace fullshard
