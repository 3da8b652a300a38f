// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/step_interval.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace fullshard {

int64_t StepInterval::steps_of(int64_t total_steps, int64_t steps_per_epoch) const {
  if (is_epoch) return std::max<int64_t>(steps_per_epoch, 1);
  // As the Trainer rounds it.
  if (share > 0) return static_cast<int64_t>(std::ceil(static_cast<double>(total_steps) * share));
  return steps;
}

std::optional<StepInterval> StepInterval::parse(std::string_view text) {
  if (text == "epoch") return StepInterval{.is_epoch = true};
  const char* const end = text.data() + text.size();
  StepInterval interval;
  if (const auto [stop, problem] = std::from_chars(text.data(), end, interval.steps);
      problem == std::errc() && stop == end) {
    return interval.steps > 0 ? std::optional(interval) : std::nullopt;
  }
  interval = {};
  const auto [stop, problem] = std::from_chars(text.data(), end, interval.share);
  const bool is_share = problem == std::errc() && stop == end && interval.share > 0 &&
                        interval.share < 1;  // not NaN either
  return is_share ? std::optional(interval) : std::nullopt;
}

}  // namespace fullshard
