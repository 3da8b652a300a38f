// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/cycle_schedules.h"

#include <cmath>

#include "fullshard/base/error.h"
#include "fullshard/optim/schedules/lr_settings.h"

namespace fullshard {

namespace {

// Set by DeepSpeed's OneCycle whatever the optimizer was made with.
constexpr double kOneCycleBeta2 = 0.99;

// How high the cycle stands at a step: 0 at its ends, 1 at its peak.
class Triangle {
 public:
  explicit Triangle(const OneCycleOptions& options)
      : first_(options.cycle_first_step_size),
        second_(options.cycle_second_step_size.value_or(options.cycle_first_step_size)),
        first_stairs_(options.cycle_first_stair_count),
        second_stairs_(options.cycle_second_stair_count.value_or(options.cycle_first_stair_count)) {
  }

  int64_t num_steps() const { return first_ + second_; }

  double height(int64_t step) const {
    const auto size = static_cast<double>(num_steps());
    const double peak = static_cast<double>(first_) / size;
    const double turns = static_cast<double>(step) / size;
    const double x = 1.0 + turns - std::floor(1.0 + turns);
    const bool rises = x <= peak;
    const auto stairs = rises ? first_stairs_ : second_stairs_;
    if (stairs > 0) return stair(step % num_steps(), stairs);
    return rises ? x / peak : (x - 1) / (peak - 1);
  }

 private:
  // From integers: a height that was rounded to just below a stair would lose all of it.
  double stair(int64_t place, int64_t stairs) const {
    const bool rises = place <= first_;
    const auto numerator = static_cast<double>((rises ? place : num_steps() - place) * stairs);
    const auto position = numerator / static_cast<double>(rises ? first_ : second_);
    return std::floor(position) / static_cast<double>(stairs);
  }

  int64_t first_, second_;
  int64_t first_stairs_, second_stairs_;
};

class OneCycle : public LrSchedule {
 public:
  explicit OneCycle(const OneCycleOptions& options)
      : LrSchedule("OneCycle"),
        options_(options),
        min_lr_(kSettings.required_lr("cycle_min_lr", options.cycle_min_lr)),
        max_lr_(kSettings.required_lr("cycle_max_lr", options.cycle_max_lr)),
        triangle_(options) {
    check_options();
  }

  std::vector<std::string> warnings() const override {
    if (!options_.cycle_momentum || options_.decay_step_size == 0 || options_.decay_mom_rate <= 0 ||
        options_.total_num_steps) {
      return {};
    }
    return {fmt::format(
        "OneCycle: decay_mom_rate {} raises the momentum without end after the cycle, and past 1; "
        "give a negative rate, or 0",
        options_.decay_mom_rate)};
  }

 private:
  static constexpr optim::LrSettings kSettings{"OneCycle"};

  void check_options() const {
    kSettings.check_ordered("cycle_min_lr", min_lr_, "cycle_max_lr", max_lr_);
    kSettings.check_not_negative("decay_lr_rate", options_.decay_lr_rate);
    kSettings.check_positive("cycle_first_step_size", options_.cycle_first_step_size);
    kSettings.check_not_negative("cycle_second_step_size",
                                 options_.cycle_second_step_size.value_or(0));
    kSettings.check_not_negative("cycle_first_stair_count", options_.cycle_first_stair_count);
    kSettings.check_not_negative("cycle_second_stair_count",
                                 options_.cycle_second_stair_count.value_or(0));
    kSettings.check_not_negative("decay_step_size", options_.decay_step_size);
    if (!options_.cycle_momentum) return;
    kSettings.check_momentum("cycle_min_mom", options_.cycle_min_mom);
    kSettings.check_momentum("cycle_max_mom", options_.cycle_max_mom);
    kSettings.check_ordered("cycle_min_mom", options_.cycle_min_mom, "cycle_max_mom",
                            options_.cycle_max_mom);
    kSettings.check_finite("decay_mom_rate", options_.decay_mom_rate);
    check_decayed_momentum();
  }

  // It moves one way only after the cycle, so the end tells. A scheduler goes one step beyond.
  void check_decayed_momentum() const {
    const int64_t last = options_.total_num_steps.value_or(0);
    const auto is_out = [&](int64_t step) { return !(momentum(step) >= 0 && momentum(step) < 1); };
    if (!is_out(last)) return;
    int64_t inside = triangle_.num_steps();
    int64_t outside = last;
    while (outside - inside > 1) {
      const int64_t middle = inside + (outside - inside) / 2;
      (is_out(middle) ? outside : inside) = middle;
    }
    fail_as(ErrorKind::usage,
            "OneCycle: decay_mom_rate is {}, which makes the momentum {:.4g} in step {} of {}, "
            "expected [0, 1); give a smaller rate, or 0",
            options_.decay_mom_rate, momentum(outside), outside, *options_.total_num_steps);
  }

  Rates rates(int64_t step, double) const override {
    Rates rates{.lr = lr(step)};
    if (options_.cycle_momentum) {
      rates.momentum = momentum(step);
      rates.beta2 = kOneCycleBeta2;
    }
    return rates;
  }

  double lr(int64_t step) const {
    if (step <= triangle_.num_steps()) {
      return min_lr_ + (max_lr_ - min_lr_) * triangle_.height(step);
    }
    return min_lr_ / (1.0 + options_.decay_lr_rate * decay_intervals(step));
  }

  double momentum(int64_t step) const {
    if (step == 0) return options_.cycle_min_mom;
    if (step <= triangle_.num_steps()) {
      const double range = options_.cycle_max_mom - options_.cycle_min_mom;
      return options_.cycle_max_mom - range * triangle_.height(step);
    }
    return options_.cycle_max_mom * (1.0 + options_.decay_mom_rate * decay_intervals(step));
  }

  double decay_intervals(int64_t step) const {
    if (options_.decay_step_size == 0) return 0.0;
    return static_cast<double>(step - triangle_.num_steps()) / options_.decay_step_size;
  }

  OneCycleOptions options_;
  double min_lr_, max_lr_;
  Triangle triangle_;
};

class LrRangeTest : public LrSchedule {
 public:
  explicit LrRangeTest(const LrRangeTestOptions& options)
      : LrSchedule("LRRangeTest"), options_(options) {
    constexpr optim::LrSettings kSettings{"LRRangeTest"};
    kSettings.check_not_negative("lr_range_test_min_lr", options.lr_range_test_min_lr);
    kSettings.check_positive("lr_range_test_step_size", options.lr_range_test_step_size);
    kSettings.check_not_negative("lr_range_test_step_rate", options.lr_range_test_step_rate);
  }

 private:
  Rates rates(int64_t step, double) const override {
    const double intervals = static_cast<double>(step) / options_.lr_range_test_step_size;
    const double passed = options_.lr_range_test_staircase ? std::floor(intervals) : intervals;
    return {.lr =
                options_.lr_range_test_min_lr * (1.0 + options_.lr_range_test_step_rate * passed)};
  }

  LrRangeTestOptions options_;
};

}  // namespace

std::unique_ptr<LrSchedule> make_one_cycle(const OneCycleOptions& options) {
  return std::make_unique<OneCycle>(options);
}

std::unique_ptr<LrSchedule> make_lr_range_test(const LrRangeTestOptions& options) {
  return std::make_unique<LrRangeTest>(options);
}

}  // namespace fullshard
