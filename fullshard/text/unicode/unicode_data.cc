// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/unicode/unicode_data.h"

namespace fullshard::text::unicode {
namespace {

uint32_t six_bits(char letter) {
  if (letter >= 'a') return static_cast<uint32_t>(letter - 'a') + 26;
  if (letter >= 'A') return static_cast<uint32_t>(letter - 'A');
  if (letter >= '0') return static_cast<uint32_t>(letter - '0') + 52;
  return letter == '+' ? 62 : 63;
}

}  // namespace

uint32_t Numbers::next() {
  uint32_t value = 0;
  for (int shift = 0;; shift += 5) {
    const uint32_t bits = six_bits(text_[position_++]);
    value |= (bits & 31) << shift;
    if ((bits & 32) == 0) return value;
  }
}

int32_t Numbers::next_signed() {
  const uint32_t value = next();
  const auto half = static_cast<int32_t>(value >> 1);
  return (value & 1) != 0 ? -half - 1 : half;
}

}  // namespace fullshard::text::unicode
