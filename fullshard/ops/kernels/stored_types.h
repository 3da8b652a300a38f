// SPDX-License-Identifier: Apache-2.0
// The element types that CPU kernels read and write; they compute in fp32. bf16 is taken by its
// bits: c10's conversions branch, which keeps loops from being vectorised.
#pragma once

#include <bit>
#include <cstdint>

namespace fullshard::ops {

enum class Brain : uint16_t {};

[[gnu::always_inline]] inline float widened(float value) { return value; }

[[gnu::always_inline]] inline float widened(Brain value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

template <class Stored>
Stored narrowed(float value);

template <>
[[gnu::always_inline]] inline float narrowed<float>(float value) {
  return value;
}

// To the nearest, ties to even, as torch rounds.
template <>
[[gnu::always_inline]] inline Brain narrowed<Brain>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  return static_cast<Brain>(is_nan ? 0x7fc0u : nearest);
}

}  // namespace fullshard::ops
