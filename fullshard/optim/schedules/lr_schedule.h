// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules: pure functions of the optimizer step. The families are in
// warmup_schedules.h and cycle_schedules.h (DeepSpeed's), trainer_schedules.h and trainer_decays.h
// (Hugging Face's); lr_scheduler.h joins one to an optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace fullshard {

struct Rates {
  double lr = 0.0;
  // Only OneCycle schedules these. They are Adam's betas; SGD's momentum is left alone.
  std::optional<double> momentum = {};
  std::optional<double> beta2 = {};
};

// Immutable, so ranks and threads may share one. Options are checked when it is made: a bad one is
// an error of kind usage that names the key.
class LrSchedule {
 public:
  virtual ~LrSchedule() = default;

  // The rates of optimizer step `step`, counted from 0: those after `step` calls of the peer's
  // step(). `optimizer_lr` is the rate that the optimizer (or its parameter group) was made with;
  // schedules that state their own rates ignore it.
  Rates at(int64_t step, double optimizer_lr) const;

  const std::string& name() const { return name_; }

  // What is allowed but hardly meant, such as a warm-up longer than the run.
  virtual std::vector<std::string> warnings() const { return {}; }

 protected:
  explicit LrSchedule(std::string name) : name_(std::move(name)) {}

 private:
  virtual Rates rates(int64_t step, double optimizer_lr) const = 0;

  std::string name_;
};

// A user's own: `lr_of` gives the rate of each step. It is called from the thread that calls at().
std::unique_ptr<LrSchedule> make_custom_schedule(std::function<double(int64_t)> lr_of);

// What a run without a scheduler section gets: WarmupDecayLR over the whole run, up to the
// optimizer's rate. Without a warm-up (the Trainer's default) it decays from the first step on:
// DeepSpeed's shortest warm-up would spend two steps with a rate of 0 that nobody asked for.
std::unique_ptr<LrSchedule> make_default_schedule(int64_t total_num_steps,
                                                  int64_t warmup_num_steps = 0);

}  // namespace fullshard
