// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/rotary_kernels.h"

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/stored_types.h"

namespace fullshard::ops {
namespace {

template <class Stored>
FULLSHARD_VECTORISED void rotate(Stored* __restrict output, const Stored* __restrict input,
                                 int64_t head_stride, const float* __restrict cosines,
                                 const float* __restrict sines, int64_t num_heads, int64_t half,
                                 float sign) {
  for (int64_t head = 0; head < num_heads; ++head) {
    const Stored* x = input + head * head_stride;
    Stored* y = output + head * 2 * half;
    for (int64_t i = 0; i < half; ++i) {
      const float first = widened(x[i]), second = widened(x[i + half]);
      const float sine = sines[i] * sign;
      y[i] = narrowed<Stored>(first * cosines[i] - second * sine);
      y[i + half] = narrowed<Stored>(second * cosines[i] + first * sine);
    }
  }
}

}  // namespace

template <class Stored>
void rotate_heads(Stored* output, const Stored* input, int64_t head_stride, const float* cosines,
                  const float* sines, int64_t num_heads, int64_t half, float sign) {
  rotate(output, input, head_stride, cosines, sines, num_heads, half, sign);
}

template void rotate_heads(float*, const float*, int64_t, const float*, const float*, int64_t,
                           int64_t, float);
template void rotate_heads(Brain*, const Brain*, int64_t, const float*, const float*, int64_t,
                           int64_t, float);

}  // namespace fullshard::ops
