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
  float lanes[kLanes];
  for (int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] = sum[lane];
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// sums[i] = the products of `row` with the i-th of `count` inputs of fp32, which lie `stride`
// apart. What one of them gives does not depend on the others.
template <int count>
[[gnu::always_inline]] inline void dot_products(float* sums, const float* row, const float* inputs,
                                                int64_t stride, int64_t width) {
  Lanes lanes[count] = {};
  int64_t k = 0;
  for (; k + kLanes <= width; k += kLanes) {
    Lanes weights;
    load_lanes(weights, row + k);
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      Lanes values;
      load_lanes(values, inputs + i * stride + k);
      lanes[i] += weights * values;
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    float rest = 0;
    for (int64_t j = k; j < width; ++j) rest += row[j] * inputs[i * stride + j];
    sums[i] = folded(lanes[i]) + rest;
  }
}

}  // namespace fullshard::ops
