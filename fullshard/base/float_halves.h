// SPDX-License-Identifier: Apache-2.0
// A float as its nearest bf16 value and the sixteen bits that this leaves out: together they are
// the float again, bit for bit, so that a value that is also wanted in bf16 is stored once.
//
//   bits      | upper 16 | lower 16 |
//   nearest     upper + 1 where the lower ones are half a step or more: ties go away from zero
//
// Half a step must always go the same way, or the lower bits would not tell whether it went up: a
// tie is therefore not rounded to even, which torch does. A NaN stays a NaN, not the same one.
#pragma once

#include <cstdint>

#include "fullshard/base/host_device.h"

namespace fullshard::base {

struct FloatHalves {
  uint16_t nearest;  // as bf16
  uint16_t lower;
};

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline FloatHalves halves_of(float value) {
  const uint32_t bits = bits_of(value);
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  const uint32_t nearest = is_nan ? 0x7fc0u : (bits + 0x8000u) >> 16;
  return {static_cast<uint16_t>(nearest), static_cast<uint16_t>(bits)};
}

[[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline float joined(FloatHalves halves) {
  const uint32_t lower = halves.lower;
  const uint32_t upper = halves.nearest - (lower >> 15);
  return float_of(upper << 16 | lower);
}

}  // namespace fullshard::base
