// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/quantity.h"

#include <charconv>
#include <cmath>
#include <string>
#include <utility>

namespace fullshard::simulation {
namespace {

struct NumberAndUnit {
  double number = 0;
  std::string_view unit{};
};

std::optional<NumberAndUnit> split(std::string_view text) {
  NumberAndUnit parts;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), parts.number);
  if (problem != std::errc() || !std::isfinite(parts.number)) return std::nullopt;
  parts.unit = text.substr(static_cast<size_t>(end - text.data()));
  while (parts.unit.starts_with(' ')) parts.unit.remove_prefix(1);
  return parts;
}

std::optional<double> prefix_of(char letter) {
  switch (letter) {
    case 'k':
    case 'K':
      return 1e3;
    case 'M':
      return 1e6;
    case 'G':
      return 1e9;
    case 'T':
      return 1e12;
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<double> parse_rate(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return std::nullopt;
  std::string_view unit = parts->unit;
  for (const std::string_view ending : {"/s", "ps"}) {
    if (unit.ends_with(ending)) {
      unit.remove_suffix(ending.size());
      break;
    }
  }
  if (unit.ends_with("it")) unit.remove_suffix(2);  // "Gbit/s"
  if (unit.empty() || unit.size() > 2) return std::nullopt;
  const bool is_bits = unit.back() == 'b';
  if (!is_bits && unit.back() != 'B') return std::nullopt;
  const auto prefix = unit.size() == 1 ? std::optional(1.0) : prefix_of(unit.front());
  if (!prefix) return std::nullopt;
  return parts->number * *prefix / (is_bits ? 8 : 1);
}

std::optional<double> parse_time(std::string_view text) {
  const auto parts = split(text);
  if (!parts) return std::nullopt;
  for (const auto& [unit, seconds] :
       {std::pair<std::string_view, double>{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}) {
    if (parts->unit == unit) return parts->number * seconds;
  }
  return std::nullopt;
}

}  // namespace fullshard::simulation
