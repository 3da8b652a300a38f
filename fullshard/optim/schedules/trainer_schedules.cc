// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/trainer_schedules.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <utility>

#include "fullshard/optim/schedules/lr_settings.h"

namespace fullshard {

namespace {

// A linear warm-up and then `after`, a factor of the optimizer's rate by step.
class TrainerSchedule : public LrSchedule {
 public:
  using Factor = std::function<double(int64_t)>;

  TrainerSchedule(const char* name, int64_t num_warmup_steps, std::optional<int64_t> total,
                  Factor after)
      : LrSchedule(name),
        settings_(name),
        num_warmup_steps_(num_warmup_steps),
        total_(total),
        after_(std::move(after)) {
    settings_.check_not_negative("num_warmup_steps", num_warmup_steps);
  }

  std::vector<std::string> warnings() const override {
    if (!total_) return {};
    return settings_.warn_of_long_warmup("num_training_steps", *total_, "num_warmup_steps",
                                         num_warmup_steps_);
  }

 private:
  Rates rates(int64_t step, double optimizer_lr) const override {
    if (step >= num_warmup_steps_) return {.lr = optimizer_lr * after_(step)};
    const double factor = static_cast<double>(step) / static_cast<double>(num_warmup_steps_);
    return {.lr = optimizer_lr * factor};
  }

  optim::LrSettings settings_;
  int64_t num_warmup_steps_;
  std::optional<int64_t> total_;
  Factor after_;
};

double steps_after_warmup(int64_t total, int64_t num_warmup_steps) {
  return static_cast<double>(std::max<int64_t>(1, total - num_warmup_steps));
}

}  // namespace

std::unique_ptr<LrSchedule> make_constant_schedule() {
  return std::make_unique<TrainerSchedule>("constant", 0, std::nullopt,
                                           [](int64_t) { return 1.0; });
}

std::unique_ptr<LrSchedule> make_constant_with_warmup(const ConstantWithWarmupOptions& options) {
  return std::make_unique<TrainerSchedule>("constant_with_warmup", options.num_warmup_steps,
                                           std::nullopt, [](int64_t) { return 1.0; });
}

std::unique_ptr<LrSchedule> make_linear_schedule(const LinearOptions& options) {
  constexpr auto kName = "linear";
  const auto total =
      optim::LrSettings(kName).required_steps("num_training_steps", options.num_training_steps);
  const double steps = steps_after_warmup(total, options.num_warmup_steps);
  return std::make_unique<TrainerSchedule>(
      kName, options.num_warmup_steps, total, [total, steps](int64_t step) {
        return std::max(0.0, static_cast<double>(total - step) / steps);
      });
}

std::unique_ptr<LrSchedule> make_cosine_schedule(const CosineOptions& options) {
  constexpr auto kName = "cosine";
  constexpr optim::LrSettings kSettings{kName};
  const auto total = kSettings.required_steps("num_training_steps", options.num_training_steps);
  kSettings.check_not_negative("num_cycles", options.num_cycles);
  const double steps = steps_after_warmup(total, options.num_warmup_steps);
  const double turn = std::numbers::pi * options.num_cycles * 2.0;
  return std::make_unique<TrainerSchedule>(
      kName, options.num_warmup_steps, total,
      [turn, steps, warmup = options.num_warmup_steps](int64_t step) {
        const double progress = static_cast<double>(step - warmup) / steps;
        return std::max(0.0, 0.5 * (1.0 + std::cos(turn * progress)));
      });
}

}  // namespace fullshard
