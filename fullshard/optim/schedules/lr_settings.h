// SPDX-License-Identifier: Apache-2.0
// Checks that all schedules make of their options; each failure names the schedule, the key, what
// was found and what is accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fullshard::optim {

class LrSettings {
 public:
  explicit constexpr LrSettings(std::string_view schedule) : schedule_(schedule) {}

  void check_positive(std::string_view key, int64_t value) const;
  void check_not_negative(std::string_view key, int64_t value) const;
  void check_not_negative(std::string_view key, double value) const;
  void check_finite(std::string_view key, double value) const;
  // [0, 1], or [0, 1) for momentum.
  void check_ratio(std::string_view key, double value) const;
  void check_momentum(std::string_view key, double value) const;
  void check_ordered(std::string_view low_key, double low, std::string_view high_key,
                     double high) const;

  // The value of a key that has no default.
  int64_t required_steps(std::string_view key, const std::optional<int64_t>& value) const;
  double required_lr(std::string_view key, const std::optional<double>& value) const;

  // DeepSpeed logs this and goes on; so does a run here.
  std::vector<std::string> warn_of_long_warmup(std::string_view total_key, int64_t total,
                                               std::string_view warmup_key, int64_t warmup) const;

 private:
  std::string_view schedule_;  // a literal
};

}  // namespace fullshard::optim
