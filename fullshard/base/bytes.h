// SPDX-License-Identifier: Apache-2.0
// Sizes as people read them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fullshard {

inline constexpr int64_t kKiB = int64_t{1} << 10;
inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kGiB = int64_t{1} << 30;

// "17 B", "1.5 KiB", "20.3 MiB": three significant digits, binary units.
std::string format_bytes(int64_t bytes);
// "5GB", "1.5KiB", "77": decimal and binary units in any case. Nothing for anything else, for less
// than a byte and for more than 1e18.
std::optional<int64_t> parse_bytes(std::string_view text);

// "950", "12.3 K", "1.1 B": counts of parameters, decimal units.
std::string format_count(int64_t count);

constexpr int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace fullshard
