// SPDX-License-Identifier: Apache-2.0
// Which elements stay is a function of two numbers and an element's place, so backward draws the
// same again.
#pragma once

#include <cstdint>

#include "fullshard/tensor/random_place.h"

namespace fullshard::ops {

// What a launch advances the generator's offset by: every group of elements draws once.
inline constexpr int64_t kDropoutDraws = 4;

struct ElementDropout {
  uint32_t threshold = 0;  // of 65536 numbers those below drop their element; 0: nothing is dropped
  float scale = 1;         // of those that stay
  tensor::RandomPlace draw = {};
  int64_t* drawn = nullptr;  // gets seed and offset; null: nobody asks
};

}  // namespace fullshard::ops
