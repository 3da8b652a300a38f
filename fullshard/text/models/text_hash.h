// SPDX-License-Identifier: Apache-2.0
// A fast hash of short strings; only for tables in memory.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace fullshard::text {

inline uint64_t text_hash(std::string_view text) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15U;
  const auto load = [](const char* from, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, from, bytes);
    return value;
  };
  const auto mix = [](uint64_t value) {
    value *= kFactor;
    return value ^ (value >> 29);
  };
  uint64_t hash = text.size() * kFactor;
  const char* at = text.data();
  size_t left = text.size();
  for (; left >= 8; at += 8, left -= 8) hash = mix(hash ^ load(at, 8));
  // Reads the rest by two loads of constant size if possible: no call of memcpy.
  if (left >= 4) {
    hash = mix(hash ^ (load(at, 4) | load(at + left - 4, 4) << 32));
  } else if (left > 0) {
    const uint64_t tail = static_cast<unsigned char>(at[0]) |
                          uint64_t{static_cast<unsigned char>(at[left / 2])} << 8 |
                          uint64_t{static_cast<unsigned char>(at[left - 1])} << 16;
    hash = mix(hash ^ tail);
  }
  return hash ^ (hash >> 32);
}

}  // namespace fullshard::text
