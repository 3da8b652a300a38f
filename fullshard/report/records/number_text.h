// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them on a progress line and on the report page.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::report {

// "2.3456"; "1.23e+05" where four decimals would not fit; "nan", "inf".
std::string format_loss(double loss);
// This many significant digits, without trailing zeros: "0.0003", "1.23".
std::string format_significant(double value, int digits);
// "0:45", "12:34", "3:02:05", "2 d 03:02:05".
std::string format_clock(double seconds);
// "850 us", "12.3 ms", "1.25 s", "12:34" from two minutes on.
std::string format_seconds(double seconds);
// "45.6 K": format_count of the nearest whole number; "nan" for a value that is not finite.
std::string format_rate(double per_second);
// "41.2%"
std::string format_percent(double share);
// "2031-05-06T07:08:09Z" of seconds since 1970.
std::string format_utc(int64_t seconds);

}  // namespace fullshard::report
