// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/wear.h"

#include <fmt/format.h>

#include "fullshard/base/printable.h"

namespace fullshard::tiers {

double bytes_written_per_day(int64_t bytes_per_step, double step_seconds) {
  constexpr double kSecondsPerDay = 86400;
  if (step_seconds <= 0) return 0;
  return static_cast<double>(bytes_per_step) / step_seconds * kSecondsPerDay;
}

std::string wear_note(const std::string& folder, double bytes_per_day, double endurance_tb) {
  constexpr double kTerabyte = 1e12;  // as data sheets count
  const double daily = bytes_per_day / kTerabyte;
  std::string text =
      fmt::format("{:.3g} TB a day are written to '{}'", daily, base::printable(folder));
  if (endurance_tb > 0 && daily > 0) {
    text += fmt::format("; a disk that endures {:g} TB is worn out in {:.0f} days", endurance_tb,
                        endurance_tb / daily);
  }
  return text;
}

}  // namespace fullshard::tiers
