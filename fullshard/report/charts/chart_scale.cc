// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/charts/chart_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "fullshard/base/bytes.h"

namespace fullshard::report {
namespace {

constexpr double kWorthLogarithms = 20;
constexpr int kAboutTicks = 5;
constexpr int kFewestTicks = 3;  // fewer do not show how far apart values are
constexpr double kSlack = 1e-9;  // of a step: a round number at the end has its tick

// 1, 2 or 5 times a power of ten, not below `step`.
double round_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - kSlack)) return factor * power;
  }
  return 10 * power;
}

// The next smaller round step.
double smaller_step(double step) {
  const double leading = step / std::pow(10, std::floor(std::log10(step) + kSlack));
  return step / (leading > 4 ? 2.5 : 2);
}

// "1.5e-4" for 1.50e-04.
std::string scientific(double value, int digits) {
  const std::string text = fmt::format("{:.{}e}", value, digits);
  const size_t e = text.find('e');
  std::string mantissa = text.substr(0, e);
  if (mantissa.find('.') != std::string::npos) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return fmt::format("{}e{}", mantissa, std::stoi(text.substr(e + 1)));
}

bool is_whole(double value) { return value == std::floor(value); }

}  // namespace

ChartScale::ChartScale(double low, double high, bool is_logarithmic)
    : low_(low), high_(high), is_logarithmic_(is_logarithmic) {}

ChartScale ChartScale::linear(double low, double high) {
  const double size = std::max(std::abs(low), std::abs(high));
  if (size == 0) {
    high = 1;
  } else if (!(high - low > size * 1e-9)) {  // ticks would differ in digits that no reader compares
    low -= size * 0.1;
    high += size * 0.1;
  }
  ChartScale scale(low, high, false);
  scale.place_linear_ticks(0);
  return scale;
}

ChartScale ChartScale::logarithmic(double low, double high) {
  ChartScale scale(low, high, true);
  scale.place_logarithmic_ticks();
  return scale;
}

ChartScale ChartScale::fitting(double low, double high) {
  return low > 0 && high / low > kWorthLogarithms ? logarithmic(low, high) : linear(low, high);
}

ChartScale ChartScale::whole(double low, double high) {
  const double room = high > low ? 0 : 0.5;  // a single step is in the middle
  ChartScale scale(low - room, high + room, false);
  scale.place_linear_ticks(1);
  return scale;
}

double ChartScale::place(double value) const {
  const double place = is_logarithmic_ ? std::log(value / low_) / std::log(high_ / low_)
                                       : (value - low_) / (high_ - low_);
  return std::clamp(place, 0.0, 1.0);
}

void ChartScale::place_linear_ticks(double least_step) {
  const auto first = [this] { return std::ceil(low_ / step_ - kSlack); };
  const auto last = [this] { return std::floor(high_ / step_ + kSlack); };
  step_ = std::max(least_step, round_step((high_ - low_) / kAboutTicks));
  if (last() - first() + 1 < kFewestTicks) step_ = std::max(least_step, smaller_step(step_));
  for (double i = first(); i <= last() && ticks_.size() < 9; ++i) ticks_.push_back(i * step_);
}

void ChartScale::place_logarithmic_ticks() {
  const double decades = std::log10(high_ / low_);
  const bool has_room = decades <= 2.5;  // for 2 and 5 in addition to the powers of ten
  const int every = std::max(1, static_cast<int>(std::ceil(decades / 6)));
  for (int power = static_cast<int>(std::floor(std::log10(low_)));
       power <= std::ceil(std::log10(high_)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      const bool is_wanted = factor == 1 ? power % every == 0 : has_room;
      const bool is_inside = tick >= low_ * (1 - kSlack) && tick <= high_ * (1 + kSlack);
      if (is_wanted && is_inside) ticks_.push_back(tick);
    }
  }
}

std::string ChartScale::label(double tick) const {
  const double size = std::abs(tick);
  if (size == 0) return "0";
  if (size >= 1e15 || size < 1e-4 || (!is_logarithmic_ && step_ < 1e-4)) return scientific(tick, 6);
  if (size >= 1e4 && is_whole(tick)) {
    const std::string text = format_count(static_cast<int64_t>(tick));
    // Three digits may be too few: 10.25 K and 10.5 K would look the same.
    const bool is_exact =
        is_logarithmic_ || step_ * 200 >= std::pow(10, std::floor(std::log10(size)));
    return is_exact ? text : fmt::format("{}", static_cast<int64_t>(tick));
  }
  if (is_logarithmic_) return fmt::format("{:g}", tick);
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(step_) + kSlack)));
  return fmt::format("{:.{}f}", tick, decimals);
}

}  // namespace fullshard::report
