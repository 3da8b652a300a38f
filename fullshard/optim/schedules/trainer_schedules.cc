// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/trainer_schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fullshard/optim/schedules/factor_schedule.h"

namespace fullshard {

namespace {

double steps_after_warmup(int64_t total, int64_t num_warmup_steps) {
  return static_cast<double>(std::max<int64_t>(1, total - num_warmup_steps));
}

}  // namespace

std::unique_ptr<LrSchedule> make_constant_schedule() {
  return std::make_unique<optim::FactorSchedule>("constant", 0, std::nullopt,
                                                 [](int64_t, double) { return 1.0; });
}

std::unique_ptr<LrSchedule> make_constant_with_warmup(const ConstantWithWarmupOptions& options) {
  return std::make_unique<optim::FactorSchedule>(
      "constant_with_warmup", options.num_warmup_steps, std::nullopt,
      optim::with_linear_warmup(options.num_warmup_steps, [](int64_t, double) { return 1.0; }));
}

std::unique_ptr<LrSchedule> make_linear_schedule(const LinearOptions& options) {
  constexpr auto kName = "linear";
  const auto total =
      optim::LrSettings(kName).required_steps("num_training_steps", options.num_training_steps);
  const double steps = steps_after_warmup(total, options.num_warmup_steps);
  const auto decay = [total, steps](int64_t step, double) {
    return std::max(0.0, static_cast<double>(total - step) / steps);
  };
  return std::make_unique<optim::FactorSchedule>(
      kName, options.num_warmup_steps, total,
      optim::with_linear_warmup(options.num_warmup_steps, decay));
}

std::unique_ptr<LrSchedule> make_cosine_schedule(const CosineOptions& options) {
  constexpr auto kName = "cosine";
  constexpr optim::LrSettings kSettings{kName};
  const auto total = kSettings.required_steps("num_training_steps", options.num_training_steps);
  kSettings.check_not_negative("num_cycles", options.num_cycles);
  const double steps = steps_after_warmup(total, options.num_warmup_steps);
  const double turn = std::numbers::pi * options.num_cycles * 2.0;
  const auto wave = [turn, steps, warmup = options.num_warmup_steps](int64_t step, double) {
    const double progress = static_cast<double>(step - warmup) / steps;
    return std::max(0.0, 0.5 * (1.0 + std::cos(turn * progress)));
  };
  return std::make_unique<optim::FactorSchedule>(
      kName, options.num_warmup_steps, total,
      optim::with_linear_warmup(options.num_warmup_steps, wave));
}

}  // namespace fullshard
