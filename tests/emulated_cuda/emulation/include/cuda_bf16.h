// SPDX-License-Identifier: Apache-2.0
// In the place of CUDA's header.
#pragma once

#include <c10/util/BFloat16.h>
#include <cuda_runtime.h>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return std::bit_cast<float>(uint32_t{value.bits} << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value) {
  return {c10::detail::round_to_nearest_even(value)};
}

// c [16, 8] += a [16, 16] * b [16, 8]; which elements a lane has is in the PTX manual, "Matrix
// fragments for mma.m16n8k16 with floating point type".
inline void mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& c0, float& c1, float& c2,
                                                                float& c3, uint32_t a0, uint32_t a1,
                                                                uint32_t a2, uint32_t a3,
                                                                uint32_t b0, uint32_t b1) {
  struct Fragment {
    __nv_bfloat16 a[4][2], b[2][2];
  };
  const uint32_t words[] = {a0, a1, a2, a3, b0, b1};
  Fragment own, of_lanes[::fullshard::emulation::kLanes];
  std::memcpy(&own, words, sizeof(own));
  std::memcpy(of_lanes, ::fullshard::emulation::exchange(~0u, &own, sizeof(own)), sizeof(of_lanes));
  const unsigned lane = ::fullshard::emulation::lane(), group = lane / 4, place = lane % 4;
  float* const c[] = {&c0, &c1, &c2, &c3};
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row_half = i / 2, column = 2 * place + i % 2;
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned k_half = k / 8, k_place = k % 8 / 2, k_part = k % 2;
      const auto a = of_lanes[group * 4 + k_place].a[row_half + 2 * k_half][k_part];
      const auto b = of_lanes[column * 4 + k_place].b[k_half][k_part];
      *c[i] += __bfloat162float(a) * __bfloat162float(b);
    }
  }
}
