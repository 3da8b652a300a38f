// SPDX-License-Identifier: Apache-2.0
// A schedule that multiplies the optimizer's rate: all of the Trainer's are.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "fullshard/optim/schedules/lr_schedule.h"
#include "fullshard/optim/schedules/lr_settings.h"

namespace fullshard::optim {

class FactorSchedule : public LrSchedule {
 public:
  // Of a step, for an optimizer of that rate.
  using Factor = std::function<double(int64_t step, double optimizer_lr)>;

  // `name` is a literal. `total` is absent where the schedule goes on without an end.
  FactorSchedule(const char* name, int64_t num_warmup_steps, std::optional<int64_t> total,
                 Factor factor)
      : LrSchedule(name),
        settings_(name),
        num_warmup_steps_(num_warmup_steps),
        total_(total),
        factor_(std::move(factor)) {
    settings_.check_not_negative("num_warmup_steps", num_warmup_steps);
  }

  std::vector<std::string> warnings() const override {
    if (!total_) return {};
    return settings_.warn_of_long_warmup("num_training_steps", *total_, "num_warmup_steps",
                                         num_warmup_steps_);
  }

 private:
  Rates rates(int64_t step, double optimizer_lr) const override {
    return {.lr = optimizer_lr * factor_(step, optimizer_lr)};
  }

  LrSettings settings_;
  int64_t num_warmup_steps_;
  std::optional<int64_t> total_;
  Factor factor_;
};

// A linear warm-up, and `after` from its end on.
inline FactorSchedule::Factor with_linear_warmup(int64_t num_warmup_steps,
                                                 FactorSchedule::Factor after) {
  return [num_warmup_steps, after = std::move(after)](int64_t step, double optimizer_lr) {
    if (step >= num_warmup_steps) return after(step, optimizer_lr);
    return static_cast<double>(step) / static_cast<double>(num_warmup_steps);
  };
}

}  // namespace fullshard::optim
