// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/lr_schedule.h"

#include <cmath>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/optim/schedules/lr_settings.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/optim/schedules/warmup_schedules.h"

namespace fullshard {

Rates LrSchedule::at(int64_t step, double optimizer_lr) const {
  check(step >= 0, "{}: step is {}, expected 0 or more", name_, step);
  return rates(step, optimizer_lr);
}

namespace {

class CustomSchedule : public LrSchedule {
 public:
  explicit CustomSchedule(std::function<double(int64_t)> lr_of)
      : LrSchedule("custom"), lr_of_(std::move(lr_of)) {}

 private:
  Rates rates(int64_t step, double) const override {
    const double lr = lr_of_(step);
    check(std::isfinite(lr) && lr >= 0,
          "custom schedule: the rate of step {} is {}, expected 0 or more; correct the function",
          step, lr);
    return {.lr = lr};
  }

  std::function<double(int64_t)> lr_of_;
};

}  // namespace

std::unique_ptr<LrSchedule> make_custom_schedule(std::function<double(int64_t)> lr_of) {
  check(lr_of != nullptr, "custom schedule: the function is empty, expected one that gives a rate");
  return std::make_unique<CustomSchedule>(std::move(lr_of));
}

std::unique_ptr<LrSchedule> make_default_schedule(int64_t total_num_steps,
                                                  int64_t warmup_num_steps) {
  optim::LrSettings("WarmupDecayLR").check_not_negative("warmup_num_steps", warmup_num_steps);
  if (warmup_num_steps == 0) {
    return make_linear_schedule({.num_warmup_steps = 0, .num_training_steps = total_num_steps});
  }
  WarmupDecayLrOptions options;
  options.total_num_steps = total_num_steps;
  options.warmup_max_lr = std::nullopt;
  options.warmup_num_steps = warmup_num_steps;
  return make_warmup_decay_lr(options);
}

}  // namespace fullshard
