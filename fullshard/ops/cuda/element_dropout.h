// SPDX-License-Identifier: Apache-2.0
// Which elements stay is a function of two numbers and an element's place, so backward draws the
// same again.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// Where the two numbers are. Those of a generator that a graph has captured are known when that
// runs.
struct DropoutDraw {
  uint64_t seed = 0, offset = 0;
  const int64_t* seed_at = nullptr;  // null: they are those above
  const int64_t* offset_at = nullptr;
  uint64_t further = 0;  // to be added to the offset
};

// What a launch advances the generator's offset by: every group of elements draws once.
inline constexpr uint64_t kDropoutDraws = 4;

struct ElementDropout {
  uint32_t threshold = 0;  // of 65536 numbers those below drop their element; 0: nothing is dropped
  float scale = 1;         // of those that stay
  DropoutDraw draw = {};
  int64_t* drawn = nullptr;  // gets seed and offset; null: nobody asks
};

}  // namespace fullshard::ops
