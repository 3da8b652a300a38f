// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/trainer_decays.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fullshard/base/error.h"
#include "fullshard/optim/schedules/factor_schedule.h"

namespace fullshard {
namespace {

using optim::FactorSchedule;
using optim::LrSettings;

constexpr int64_t kUsualTimescale = 10'000;

// From 1 down to 0 and up again. Angles are multiplied in transformers' order: the same bits.
double wave_at(double angle) { return 0.5 * (1.0 + std::cos(angle)); }
double wave_of(double num_cycles, double progress) {
  return wave_at(std::numbers::pi * num_cycles * 2.0 * progress);
}

double share_after_warmup(int64_t step, int64_t warmup, int64_t total) {
  return static_cast<double>(step - warmup) /
         static_cast<double>(std::max<int64_t>(1, total - warmup));
}

// As a share of the optimizer's rate, whichever of the two was given.
struct LowestRate {
  std::optional<double> lr, share;

  double of(double optimizer_lr) const { return lr ? *lr / optimizer_lr : *share; }
};

LowestRate lowest_rate(const char* name, const CosineWithMinLrOptions& options) {
  const LrSettings settings(name);
  if (options.min_lr.has_value() == options.min_lr_rate.has_value()) {
    fail_as(ErrorKind::usage, "{}: {} of min_lr and min_lr_rate; give one of them", name,
            options.min_lr ? "has both" : "has none");
  }
  if (options.min_lr) settings.check_not_negative("min_lr", *options.min_lr);
  if (options.min_lr_rate) settings.check_ratio("min_lr_rate", *options.min_lr_rate);
  settings.check_not_negative("num_cycles", options.num_cycles);
  return {options.min_lr, options.min_lr_rate};
}

void check_shape(const char* key, const std::string& name) {
  if (name == "linear" || name == "cosine" || name == "1-sqrt") return;
  fail_as(ErrorKind::usage, "warmup_stable_decay: {} is '{}', expected linear, cosine or 1-sqrt",
          key, name);
}

double rise(const std::string& shape, double progress) {
  if (shape == "cosine") return 0.5 * (1.0 - std::cos(std::numbers::pi * progress));
  if (shape == "1-sqrt") return 1.0 - std::sqrt(1.0 - progress);
  return progress;
}

double fall(const std::string& shape, double progress, double num_cycles) {
  if (shape == "cosine") return wave_of(num_cycles, progress);
  if (shape == "1-sqrt") return 1.0 - std::sqrt(progress);
  return 1.0 - progress;
}

double above(double least, double factor) { return std::max(0.0, factor * (1.0 - least) + least); }

}  // namespace

std::unique_ptr<LrSchedule> make_polynomial_schedule(const PolynomialOptions& options) {
  constexpr auto kName = "polynomial";
  constexpr LrSettings kSettings{kName};
  const auto total = kSettings.required_steps("num_training_steps", options.num_training_steps);
  kSettings.check_not_negative("lr_end", options.lr_end);
  kSettings.check_not_negative("power", options.power);
  const auto decay = [options, total](int64_t step, double lr) {
    if (!(lr > options.lr_end)) {
      fail_as(ErrorKind::usage,
              "polynomial: lr_end is {}, which is not below the learning rate {}; give a smaller "
              "lr_end",
              options.lr_end, lr);
    }
    if (step > total) return options.lr_end / lr;
    const double left = 1.0 - share_after_warmup(step, options.num_warmup_steps, total);
    return ((lr - options.lr_end) * std::pow(left, options.power) + options.lr_end) / lr;
  };
  return std::make_unique<FactorSchedule>(
      kName, options.num_warmup_steps, total,
      optim::with_linear_warmup(options.num_warmup_steps, decay));
}

std::unique_ptr<LrSchedule> make_cosine_with_restarts(const CosineWithRestartsOptions& options) {
  constexpr auto kName = "cosine_with_restarts";
  constexpr LrSettings kSettings{kName};
  const auto total = kSettings.required_steps("num_training_steps", options.num_training_steps);
  kSettings.check_positive("num_cycles", options.num_cycles);
  const auto wave = [options, total](int64_t step, double) {
    const double progress = share_after_warmup(step, options.num_warmup_steps, total);
    if (progress >= 1.0) return 0.0;
    const double cycles = static_cast<double>(options.num_cycles) * progress;
    return std::max(0.0, wave_at(std::numbers::pi * std::fmod(cycles, 1.0)));
  };
  return std::make_unique<FactorSchedule>(
      kName, options.num_warmup_steps, total,
      optim::with_linear_warmup(options.num_warmup_steps, wave));
}

std::unique_ptr<LrSchedule> make_inverse_sqrt_schedule(const InverseSqrtOptions& options) {
  constexpr auto kName = "inverse_sqrt";
  const int64_t warmup = options.num_warmup_steps;
  const int64_t timescale = options.timescale.value_or(warmup > 0 ? warmup : kUsualTimescale);
  LrSettings(kName).check_positive("timescale", timescale);
  const auto decay = [warmup, timescale](int64_t step, double) {
    const auto shifted = static_cast<double>(step + (timescale - warmup));
    return 1.0 / std::sqrt(shifted / static_cast<double>(timescale));
  };
  return std::make_unique<FactorSchedule>(kName, warmup, std::nullopt,
                                          optim::with_linear_warmup(warmup, decay));
}

std::unique_ptr<LrSchedule> make_cosine_with_min_lr(const CosineWithMinLrOptions& options) {
  constexpr auto kName = "cosine_with_min_lr";
  const LowestRate lowest = lowest_rate(kName, options);
  const auto total =
      LrSettings(kName).required_steps("num_training_steps", options.num_training_steps);
  const auto wave = [options, total, lowest](int64_t step, double lr) {
    const double progress = share_after_warmup(step, options.num_warmup_steps, total);
    return above(lowest.of(lr), wave_of(options.num_cycles, progress));
  };
  return std::make_unique<FactorSchedule>(
      kName, options.num_warmup_steps, total,
      optim::with_linear_warmup(options.num_warmup_steps, wave));
}

std::unique_ptr<LrSchedule> make_cosine_warmup_with_min_lr(const CosineWithMinLrOptions& options) {
  constexpr auto kName = "cosine_warmup_with_min_lr";
  const LowestRate lowest = lowest_rate(kName, options);
  const auto total =
      LrSettings(kName).required_steps("num_training_steps", options.num_training_steps);
  if (options.warmup_lr_rate)
    LrSettings(kName).check_ratio("warmup_lr_rate", *options.warmup_lr_rate);
  const auto factor = [options, total, lowest](int64_t step, double lr) {
    const int64_t warmup = options.num_warmup_steps;
    if (step < warmup && !options.warmup_lr_rate) {
      return static_cast<double>(step + 1) / static_cast<double>(warmup);
    }
    if (step < warmup) {
      const double first = *options.warmup_lr_rate;
      return first + (1.0 - first) * static_cast<double>(step) /
                         static_cast<double>(std::max<int64_t>(1, warmup - 1));
    }
    const double progress = share_after_warmup(step + 1, warmup, total);
    return above(lowest.of(lr), wave_of(options.num_cycles, progress));
  };
  return std::make_unique<FactorSchedule>(kName, options.num_warmup_steps, total, factor);
}

std::unique_ptr<LrSchedule> make_warmup_stable_decay(const WarmupStableDecayOptions& options) {
  constexpr auto kName = "warmup_stable_decay";
  constexpr LrSettings kSettings{kName};
  const int64_t decay = kSettings.required_steps("num_decay_steps", options.num_decay_steps);
  const int64_t warmup = options.num_warmup_steps;
  const int64_t stable =
      options.num_stable_steps
          ? *options.num_stable_steps
          : kSettings.required_steps("num_training_steps", options.num_training_steps) - warmup -
                decay;
  check_shape("warmup_type", options.warmup_type);
  check_shape("decay_type", options.decay_type);
  kSettings.check_ratio("min_lr_ratio", options.min_lr_ratio);
  kSettings.check_not_negative("num_cycles", options.num_cycles);
  const auto factor = [options, warmup, stable, decay](int64_t step, double) {
    if (step < warmup) {
      const double progress = static_cast<double>(step) / static_cast<double>(warmup);
      return above(options.min_lr_ratio, rise(options.warmup_type, progress));
    }
    if (step < warmup + stable) return 1.0;
    if (step >= warmup + stable + decay) return options.min_lr_ratio;
    const double progress =
        static_cast<double>(step - warmup - stable) / static_cast<double>(decay);
    return above(options.min_lr_ratio, fall(options.decay_type, progress, options.num_cycles));
  };
  return std::make_unique<FactorSchedule>(kName, warmup, options.num_training_steps, factor);
}

}  // namespace fullshard
