// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/non_finite_kernels.h"

#include <algorithm>

#include "fullshard/base/vectorised.h"

namespace fullshard::tensor {
namespace {

// Between looks at the answer, so that a long tensor is left early.
constexpr int64_t kBlock = 1 << 14;

}  // namespace

template <class Bits>
FULLSHARD_VECTORISED bool any_in_block(const Bits* values, int64_t numel, Bits exponent) {
  Bits found = 0;
  for (int64_t i = 0; i < numel; ++i) {
    found |= static_cast<Bits>((values[i] & exponent) == exponent ? 1 : 0);
  }
  return found != 0;
}

template <class Bits>
bool any_has_all_bits(const Bits* values, int64_t numel, Bits exponent) {
  for (int64_t begin = 0; begin < numel; begin += kBlock) {
    if (any_in_block(values + begin, std::min(kBlock, numel - begin), exponent)) return true;
  }
  return false;
}

template bool any_has_all_bits<uint16_t>(const uint16_t*, int64_t, uint16_t);
template bool any_has_all_bits<uint32_t>(const uint32_t*, int64_t, uint32_t);
template bool any_has_all_bits<uint64_t>(const uint64_t*, int64_t, uint64_t);

}  // namespace fullshard::tensor
