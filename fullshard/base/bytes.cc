// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/bytes.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

namespace fullshard {
namespace {

// Three significant digits, without trailing zeros: "1.5", "20.3", "999".
std::string three_digits(double value) {
  const int decimals = value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text;
}

std::string scaled(int64_t amount, int64_t step, std::span<const std::string_view> units,
                   int64_t exact_below) {
  const std::string_view sign = amount < 0 ? "-" : "";
  double value = std::abs(static_cast<double>(amount));
  if (value < static_cast<double>(exact_below)) {
    return units[0].empty() ? fmt::format("{}", amount) : fmt::format("{} {}", amount, units[0]);
  }
  // 999.5 of one unit would be printed as 1000: it belongs to the next.
  size_t unit = 0;
  while (unit + 1 < units.size() && std::round(value) >= static_cast<double>(step)) {
    value /= static_cast<double>(step);
    ++unit;
  }
  return fmt::format("{}{} {}", sign, three_digits(value), units[unit]);
}

}  // namespace

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits = {"B",   "KiB", "MiB",
                                                             "GiB", "TiB", "PiB"};
  return scaled(bytes, 1024, kUnits, 1024);
}

std::optional<int64_t> parse_bytes(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{
      {"", 1},
      {"B", 1},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KIB", 1024.0},
      {"MIB", 1024.0 * 1024},
      {"GIB", 1024.0 * 1024 * 1024},
      {"TIB", 1024.0 * 1024 * 1024 * 1024},
  }};
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc()) return std::nullopt;
  std::string unit(stop, end);
  for (char& sign : unit) sign = static_cast<char>(std::toupper(static_cast<unsigned char>(sign)));
  for (const auto& [name, bytes] : kUnits) {
    const double size = number * bytes;
    if (name == unit && size >= 1 && size <= 1e18) return static_cast<int64_t>(size);
  }
  return std::nullopt;
}

std::string format_count(int64_t count) {
  static constexpr std::array<std::string_view, 5> kUnits = {"", "K", "M", "B", "T"};
  return scaled(count, 1000, kUnits, 1000);
}

}  // namespace fullshard
