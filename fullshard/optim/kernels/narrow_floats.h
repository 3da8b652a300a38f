// SPDX-License-Identifier: Apache-2.0
// bf16 and fp16 by their bits: c10's conversions branch, which keeps loops from being vectorised.
// Rounded to the nearest, ties to even, as torch does it.
#pragma once

#include <cstdint>

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

enum class Bf16 : uint16_t {};
enum class Fp16 : uint16_t {};

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline float widened(Bf16 value) {
  return base::float_of(static_cast<uint32_t>(value) << 16);
}

// An fp16 number has its exponent 112 lower than fp32's and 13 bits less of mantissa.
constexpr uint32_t kHalfExponentShift = 112u << 23;

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline float widened(Fp16 value) {
  const auto bits = static_cast<uint32_t>(value);
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  // Subnormal: as the mantissa of 2^-14, from which that one is taken away again.
  constexpr uint32_t kSmallestNormal = kHalfExponentShift + (1u << 23);
  const float small = base::float_of(magnitude + kSmallestNormal) - base::float_of(kSmallestNormal);
  const uint32_t special = magnitude >= 0x7c00u << 13 ? kHalfExponentShift : 0;  // infinity, NaN
  const uint32_t normal = magnitude + kHalfExponentShift + special;
  const uint32_t result = magnitude < 1u << 23 ? base::bits_of(small) : normal;
  return base::float_of(result | (bits & 0x8000u) << 16);
}

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline float widened(float value) { return value; }
[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline double widened(double value) { return value; }

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void narrow(float value, Bf16& to) {
  const auto bits = base::bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t nearest = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  to = static_cast<Bf16>(is_nan ? 0x7fc0u : nearest);
}

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void narrow(float value, Fp16& to) {
  const auto bits = base::bits_of(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal =
      (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - kHalfExponentShift) >> 13;
  // Subnormal: one half has its last bit where fp16's subnormals have theirs, so that the addition
  // rounds.
  const uint32_t small = base::bits_of(base::float_of(magnitude) + 0.5f) - base::bits_of(0.5f);
  const uint32_t finite = magnitude < kHalfExponentShift + (1u << 23) ? small : normal;
  const uint32_t bounded = magnitude >= 0x477ff000u ? 0x7c00u : finite;  // from 65520 on: infinity
  const uint32_t result = magnitude > 0x7f800000u ? 0x7e00u : bounded;
  to = static_cast<Fp16>(result | (bits & 0x80000000u) >> 16);
}

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void narrow(float value, float& to) {
  to = value;
}

}  // namespace fullshard::optim
