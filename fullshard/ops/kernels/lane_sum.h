// SPDX-License-Identifier: Apache-2.0
// Sums along a row in a fixed number of lanes, so that the order of additions, and with it the
// bits, is the same for every instruction set.
#pragma once

#include <cstdint>

namespace fullshard::ops {

inline constexpr int64_t kSumLanes = 32;

// term(i) for i in [0, numel).
template <class Term>
[[gnu::always_inline]] inline float lane_sum(int64_t numel, const Term& term) {
  float lanes[kSumLanes] = {};
  int64_t i = 0;
  for (; i + kSumLanes <= numel; i += kSumLanes) {
    for (int64_t lane = 0; lane < kSumLanes; ++lane) lanes[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i < numel; ++i, ++lane) lanes[lane] += term(i);
  for (int64_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (int64_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace fullshard::ops
