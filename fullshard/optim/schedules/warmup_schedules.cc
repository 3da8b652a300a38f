// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/warmup_schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "fullshard/base/error.h"
#include "fullshard/optim/schedules/lr_settings.h"

namespace fullshard {

namespace {

// The part of a warm-up that is done, 0 to 1. DeepSpeed's counter t runs one behind the step.
class Warmup {
 public:
  Warmup(int64_t num_steps, WarmupType type)
      : num_steps_(std::max<int64_t>(2, num_steps)),
        type_(type),
        inverse_log_(1.0 / std::log(static_cast<double>(num_steps_))) {}

  int64_t num_steps() const { return num_steps_; }
  bool lasts(int64_t t) const { return t < num_steps_; }

  double progress(int64_t t) const {
    if (type_ == WarmupType::linear) return static_cast<double>(t) / num_steps_;
    return inverse_log_ * std::log(static_cast<double>(t + 1));
  }

 private:
  int64_t num_steps_;
  WarmupType type_;
  double inverse_log_;
};

// WarmupLR without a total, WarmupDecayLR with one.
class WarmupSchedule : public LrSchedule {
 public:
  WarmupSchedule(const char* name, const WarmupLrOptions& options, std::optional<int64_t> total)
      : LrSchedule(name),
        settings_(name),
        options_(options),
        total_(total),
        warmup_(options.warmup_num_steps, options.warmup_type) {
    settings_.check_positive("warmup_num_steps", options.warmup_num_steps);
    settings_.check_not_negative("warmup_min_lr", options.warmup_min_lr);
    if (!options.warmup_max_lr) return;
    settings_.check_not_negative("warmup_max_lr", *options.warmup_max_lr);
    settings_.check_ordered("warmup_min_lr", options.warmup_min_lr, "warmup_max_lr",
                            *options.warmup_max_lr);
  }

  std::vector<std::string> warnings() const override {
    if (!total_) return {};
    return settings_.warn_of_long_warmup("total_num_steps", *total_, "warmup_num_steps",
                                         warmup_.num_steps());
  }

 private:
  Rates rates(int64_t step, double optimizer_lr) const override {
    const double low = options_.warmup_min_lr;
    const double high = options_.warmup_max_lr.value_or(optimizer_lr);
    settings_.check_ordered("warmup_min_lr", low, "the optimizer's lr", high);
    if (step == 0) return {.lr = low};
    return {.lr = low + (high - low) * factor(step - 1)};
  }

  double factor(int64_t t) const {
    if (warmup_.lasts(t)) return warmup_.progress(t);
    if (!total_) return 1.0;
    const auto decay_steps = std::max<int64_t>(1, *total_ - warmup_.num_steps());
    return std::max(0.0, static_cast<double>(*total_ - t) / static_cast<double>(decay_steps));
  }

  optim::LrSettings settings_;
  WarmupLrOptions options_;
  std::optional<int64_t> total_;
  Warmup warmup_;
};

class WarmupCosineSchedule : public LrSchedule {
 public:
  explicit WarmupCosineSchedule(const WarmupCosineLrOptions& options)
      : LrSchedule("WarmupCosineLR"),
        options_(options),
        total_(kSettings.required_steps("total_num_steps", options.total_num_steps)),
        warmup_(options.warmup_num_steps, options.warmup_type) {
    kSettings.check_positive("warmup_num_steps", options.warmup_num_steps);
    kSettings.check_ratio("warmup_min_ratio", options.warmup_min_ratio);
    kSettings.check_ratio("cos_min_ratio", options.cos_min_ratio);
  }

  std::vector<std::string> warnings() const override {
    return kSettings.warn_of_long_warmup("total_num_steps", total_, "warmup_num_steps",
                                         warmup_.num_steps());
  }

 private:
  static constexpr optim::LrSettings kSettings{"WarmupCosineLR"};

  Rates rates(int64_t step, double optimizer_lr) const override {
    if (step == 0) return {.lr = 0.0};
    return {.lr = optimizer_lr * ratio(step - 1)};
  }

  double ratio(int64_t t) const {
    if (warmup_.lasts(t)) {
      return options_.warmup_min_ratio + warmup_.progress(t) * (1.0 - options_.warmup_min_ratio);
    }
    const auto done = static_cast<double>(t - warmup_.num_steps() + 1);
    const auto steps = static_cast<double>(std::max<int64_t>(1, total_ - warmup_.num_steps()));
    const double wave = (1.0 + std::cos(std::numbers::pi * std::min(1.0, done / steps))) / 2;
    return std::max(0.0, options_.cos_min_ratio + (1.0 - options_.cos_min_ratio) * wave);
  }

  WarmupCosineLrOptions options_;
  int64_t total_;
  Warmup warmup_;
};

}  // namespace

WarmupType warmup_type_from(std::string_view name) {
  if (name == "log") return WarmupType::log;
  if (name == "linear") return WarmupType::linear;
  fail_as(ErrorKind::usage, "warmup_type is '{}', expected log or linear", name);
}

std::unique_ptr<LrSchedule> make_warmup_lr(const WarmupLrOptions& options) {
  return std::make_unique<WarmupSchedule>("WarmupLR", options, std::nullopt);
}

std::unique_ptr<LrSchedule> make_warmup_decay_lr(const WarmupDecayLrOptions& options) {
  constexpr auto kName = "WarmupDecayLR";
  const auto total =
      optim::LrSettings(kName).required_steps("total_num_steps", options.total_num_steps);
  const WarmupLrOptions warmup{options.warmup_min_lr, options.warmup_max_lr,
                               options.warmup_num_steps, options.warmup_type};
  return std::make_unique<WarmupSchedule>(kName, warmup, total);
}

std::unique_ptr<LrSchedule> make_warmup_cosine_lr(const WarmupCosineLrOptions& options) {
  return std::make_unique<WarmupCosineSchedule>(options);
}

}  // namespace fullshard
