// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/number_text.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>

#include "fullshard/base/bytes.h"

namespace fullshard::report {

std::string format_loss(double loss) {
  const double size = std::abs(loss);
  const bool is_plain = loss == 0 || (size >= 0.01 && size < 1e4);
  return is_plain ? fmt::format("{:.4f}", loss) : fmt::format("{:.3g}", loss);
}

std::string format_significant(double value, int digits) {
  return fmt::format("{:.{}g}", value, digits);
}

std::string format_clock(double seconds) {
  if (!(seconds >= 0) || seconds > 1e10) return "unknown";
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  const int64_t days = whole / 86400, hours = whole / 3600 % 24, minutes = whole / 60 % 60;
  if (days > 0) return fmt::format("{} d {:02}:{:02}:{:02}", days, hours, minutes, whole % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{}:{:02}", minutes, whole % 60);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds >= 120) return format_clock(seconds);
  if (seconds >= 0.9995) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 0.9995e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} us", seconds * 1e6);
}

std::string format_rate(double per_second) {
  if (!std::isfinite(per_second) || std::abs(per_second) > 9e18) {
    return fmt::format("{:.3g}", per_second);
  }
  return format_count(std::llround(per_second));
}

std::string format_percent(double share) { return fmt::format("{:.1f}%", share * 100); }

std::string format_utc(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[64];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace fullshard::report
