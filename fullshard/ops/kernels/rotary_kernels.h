// SPDX-License-Identifier: Apache-2.0
// Rotary embedding of one position on the CPU. `Stored` is float or Brain.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// All heads of one position: input's heads lie `head_stride` apart, output's side by side. cosines
// and sines have `half` elements; `sign` is -1 to turn back.
template <class Stored>
void rotate_heads(Stored* output, const Stored* input, int64_t head_stride, const float* cosines,
                  const float* sines, int64_t num_heads, int64_t half, float sign);

}  // namespace fullshard::ops
