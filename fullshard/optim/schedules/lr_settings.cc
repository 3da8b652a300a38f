// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/schedules/lr_settings.h"

#include <cmath>

#include "fullshard/base/error.h"

namespace fullshard::optim {

namespace {

template <class Value>
[[noreturn]] void reject(std::string_view schedule, std::string_view key, Value value,
                         std::string_view expected) {
  fail_as(ErrorKind::usage, "{}: {} is {}, expected {}", schedule, key, value, expected);
}

}  // namespace

void LrSettings::check_positive(std::string_view key, int64_t value) const {
  if (value <= 0) reject(schedule_, key, value, "a positive integer");
}

void LrSettings::check_not_negative(std::string_view key, int64_t value) const {
  if (value < 0) reject(schedule_, key, value, "0 or more");
}

void LrSettings::check_not_negative(std::string_view key, double value) const {
  if (!std::isfinite(value) || value < 0) reject(schedule_, key, value, "0 or more");
}

void LrSettings::check_finite(std::string_view key, double value) const {
  if (!std::isfinite(value)) reject(schedule_, key, value, "a finite number");
}

void LrSettings::check_ratio(std::string_view key, double value) const {
  if (!(value >= 0 && value <= 1)) reject(schedule_, key, value, "a number in [0, 1]");
}

void LrSettings::check_momentum(std::string_view key, double value) const {
  if (!(value >= 0 && value < 1)) reject(schedule_, key, value, "a number in [0, 1)");
}

void LrSettings::check_ordered(std::string_view low_key, double low, std::string_view high_key,
                               double high) const {
  if (low <= high) return;
  fail_as(ErrorKind::usage, "{}: {} is {}, expected at most {}, which is {}", schedule_, low_key,
          low, high_key, high);
}

int64_t LrSettings::required_steps(std::string_view key,
                                   const std::optional<int64_t>& value) const {
  if (!value) {
    fail_as(ErrorKind::usage,
            "{}: {} is missing, expected a positive integer; give the number of optimizer steps "
            "of the whole run",
            schedule_, key);
  }
  check_positive(key, *value);
  return *value;
}

double LrSettings::required_lr(std::string_view key, const std::optional<double>& value) const {
  if (!value) {
    fail_as(ErrorKind::usage, "{}: {} is missing, expected a learning rate of 0 or more", schedule_,
            key);
  }
  check_not_negative(key, *value);
  return *value;
}

std::vector<std::string> LrSettings::warn_of_long_warmup(std::string_view total_key, int64_t total,
                                                         std::string_view warmup_key,
                                                         int64_t warmup) const {
  if (total >= warmup) return {};
  return {
      fmt::format("{}: {} {} is less than {} {}: the run ends before the warm-up does; lower {}",
                  schedule_, total_key, total, warmup_key, warmup, warmup_key)};
}

}  // namespace fullshard::optim
