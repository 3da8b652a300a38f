// SPDX-License-Identifier: Apache-2.0
// Functions of one number by an instruction each, within 2^-22 of it: nothing beside a rounding to
// 16 bits. What would be subnormal is zero, so that nothing has to be scaled before and after.
#pragma once

namespace fullshard::ops {

inline constexpr float kLog2OfE = 1.44269504f;

// 2^x. An exponential by it is one multiplication with addition more, where what is subtracted is
// known in powers of two.
__device__ __forceinline__ float power_of_two(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

__device__ __forceinline__ float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace fullshard::ops
