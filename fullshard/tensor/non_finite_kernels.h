// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fullshard::tensor {

// A value is not finite when all bits of its exponent are set.
template <class Bits>
bool any_has_all_bits(const Bits* values, int64_t numel, Bits exponent);

}  // namespace fullshard::tensor
