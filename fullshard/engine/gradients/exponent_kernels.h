// SPDX-License-Identifier: Apache-2.0
// Numbers whose exponent has all its bits are infinities and NaN. Raw pointers and a stream, no
// torch.
#pragma once

#include <cstdint>

#include "fullshard/tensor/device_stream.h"

namespace fullshard::engine {

// Of the element in the low bits of a 32-bit word, and of a second one in its high bits, if any.
struct ExponentBits {
  uint32_t low = 0, high = 0;
};

// *flag = 1 when some element has all of them, among num_packs times 16 bytes, aligned to that.
void launch_find_exponent(int32_t* flag, const void* values, int64_t num_packs, ExponentBits bits,
                          tensor::DeviceStream stream);

}  // namespace fullshard::engine
