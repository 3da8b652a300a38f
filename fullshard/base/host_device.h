// SPDX-License-Identifier: Apache-2.0
// Functions that CPU loops and CUDA kernels share: one text, so one arithmetic. CUDA sources are
// compiled with -fmad=false, as C++ ones are with -ffp-contract=off, and both give the same bits.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FULLSHARD_HOST_DEVICE __host__ __device__
#else
#define FULLSHARD_HOST_DEVICE
#endif

namespace fullshard::base {

// std::bit_cast is for the host only.
FULLSHARD_HOST_DEVICE constexpr uint32_t bits_of(float value) {
  return __builtin_bit_cast(uint32_t, value);
}
FULLSHARD_HOST_DEVICE constexpr float float_of(uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}

}  // namespace fullshard::base
