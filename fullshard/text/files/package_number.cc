// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/files/package_number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace fullshard::text {

double as_package_reads(double value) {
  if (!std::isfinite(value) || value == 0) return value;
  const std::string text = fmt::format("{}", std::abs(value));  // "12.5", "1e-05"
  uint64_t digits = 0;
  int exponent = 0;
  bool in_fraction = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '.') {
      in_fraction = true;
    } else if (text[i] == 'e') {
      int written = 0;
      const size_t begin = i + (text[i + 1] == '+' ? 2 : 1);
      std::from_chars(text.data() + begin, text.data() + text.size(), written);
      exponent += written;
      break;
    } else {
      digits = digits * 10 + static_cast<uint64_t>(text[i] - '0');
      exponent -= in_fraction;
    }
  }
  auto result = static_cast<double>(digits);
  const auto power = [](int tens) {
    double parsed = 0;
    const std::string written =
        fmt::format("1e{}", tens);  // exact up to 1e22, correctly rounded above
    std::from_chars(written.data(), written.data() + written.size(), parsed);
    return parsed;
  };
  for (; exponent < -308; exponent += 308) result /= power(308);
  result = exponent < 0 ? result / power(-exponent) : result * power(exponent);
  return value < 0 ? -result : result;
}

}  // namespace fullshard::text
