// SPDX-License-Identifier: Apache-2.0
// exp and the logistic function without branches, so that loops over them become vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace fullshard::ops {

// Within 2 units in the last place of fp32 where the result is a normal number; 0 below, the
// largest power of two's neighbourhood (2.4e38) above. NaN stays NaN.
//
// exp(x) = 2^n exp(r) with n the nearest integer to x/ln 2 and |r| <= ln(2)/2: ln 2 is taken away
// in two parts, the first of which has so few bits that n times it is exact.
[[gnu::always_inline]] inline float vector_exp(float x) {
  constexpr float kLowest = -87.33654f, kHighest = 88.37f;
  constexpr float kRounder =
      12582912.0f;  // 1.5 * 2^23: adding it leaves an integer in the low bits
  const float bounded = x < kLowest ? kLowest : (x > kHighest ? kHighest : x);
  const float shifted = bounded * 1.44269504f + kRounder;
  const float n = shifted - kRounder;
  const float r = (bounded - n * 0.693359375f) - n * -2.12194440e-4f;
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  const float mantissa = (r * r) * sum + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(shifted) << 23;
  const float result = std::bit_cast<float>(std::bit_cast<uint32_t>(mantissa) + exponent);
  return x < kLowest ? 0.0f : result;
}

[[gnu::always_inline]] inline float logistic(float x) { return 1.0f / (1.0f + vector_exp(-x)); }

}  // namespace fullshard::ops
