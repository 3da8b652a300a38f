// SPDX-License-Identifier: Apache-2.0
// Where a value is on a chart, and the round numbers on its axis.
#pragma once

#include <string>
#include <vector>

namespace fullshard::report {

class ChartScale {
 public:
  // From `low` to `high`; widened a little if they are equal.
  static ChartScale linear(double low, double high);
  // Both must be positive.
  static ChartScale logarithmic(double low, double high);
  // Logarithmic when all values are positive and they differ by more than a factor of 20.
  static ChartScale fitting(double low, double high);
  // For steps: whole numbers.
  static ChartScale whole(double low, double high);

  double place(double value) const;  // 0 at the low end, 1 at the high one; beyond is cut off
  bool is_logarithmic() const { return is_logarithmic_; }
  double low() const { return low_; }
  double high() const { return high_; }
  // Round values between the ends, rising; two to nine of them.
  const std::vector<double>& ticks() const { return ticks_; }
  // "0.25", "1.5e-4", "20 K": with enough digits to tell the ticks apart.
  std::string label(double tick) const;

 private:
  ChartScale(double low, double high, bool is_logarithmic);
  void place_linear_ticks(double least_step);
  void place_logarithmic_ticks();

  double low_, high_;
  bool is_logarithmic_;
  double step_ = 0;  // between linear ticks
  std::vector<double> ticks_;
};

}  // namespace fullshard::report
