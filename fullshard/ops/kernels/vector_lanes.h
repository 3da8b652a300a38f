// SPDX-License-Identifier: Apache-2.0
// Sixteen fp32 numbers as one value of the compiler's own vector type, for sums of products that
// its vectoriser does not see through. One register or several, by the instruction set: the order
// of additions, and with it the bits, is the same for all.
#pragma once

#include <cstdint>

namespace fullshard::ops {

inline constexpr int64_t kLanes = 16;

typedef float Lanes __attribute__((vector_size(64)));
typedef float StoredLanes __attribute__((vector_size(64), aligned(4), may_alias));

// By reference: how a vector is returned depends on the instruction set.
[[gnu::always_inline]] inline void load_lanes(Lanes& to, const float* from) {
  to = *reinterpret_cast<const StoredLanes*>(from);
}

// Halves are added to halves until one number is left.
[[gnu::always_inline]] inline float folded(const Lanes& sum) {
  const Lanes eight =
      sum + __builtin_shufflevector(sum, sum, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7);
  const Lanes four = eight + __builtin_shufflevector(eight, eight, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13,
                                                     14, 15, 8, 9, 10, 11);
  const Lanes two = four + __builtin_shufflevector(four, four, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9,
                                                   14, 15, 12, 13);
  return two[0] + two[1];
}

// sums[i] = the products of the i-th of `count` rows, side by side, with `input`. What one row
// gives does not depend on the others.
template <int count>
[[gnu::always_inline]] inline void dot_products(float* sums, const float* rows, const float* input,
                                                int64_t width) {
  Lanes lanes[count] = {};
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    Lanes values;
    load_lanes(values, input + k);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      Lanes weights;
      load_lanes(weights, rows + i * width + k);
      lanes[i] += weights * values;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    float rest = 0;
    for (int64_t j = k; j < width; ++j) rest += rows[i * width + j] * input[j];
    sums[i] = folded(lanes[i]) + rest;
  }
}

}  // namespace fullshard::ops
