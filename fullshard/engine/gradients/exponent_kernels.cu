// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/engine/gradients/exponent_kernels.h"

namespace fullshard::engine {
namespace {

constexpr int kThreads = 512;

__device__ __forceinline__ bool has_all(uint32_t word, ExponentBits bits) {
  return (word & bits.low) == bits.low || (bits.high != 0 && (word & bits.high) == bits.high);
}

__global__ void __launch_bounds__(kThreads)
    find_exponent(int32_t* flag, const uint4* packs, int64_t num_packs, ExponentBits bits) {
  constexpr int kUnrolled = 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  bool found = false;
  for (int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; first < num_packs;
       first += kUnrolled * step) {
    uint4 raw[kUnrolled] = {};
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      if (first + u * step < num_packs) raw[u] = packs[first + u * step];
    }
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) {
      found |= has_all(raw[u].x, bits) | has_all(raw[u].y, bits) | has_all(raw[u].z, bits) |
               has_all(raw[u].w, bits);
    }
  }
  if (found) *flag = 1;  // whoever writes, writes the same
}

}  // namespace

void launch_find_exponent(int32_t* flag, const void* values, int64_t num_packs, ExponentBits bits,
                          tensor::DeviceStream stream) {
  if (num_packs == 0) return;
  const int64_t blocks = std::min<int64_t>((num_packs + kThreads - 1) / kThreads, 528);
  find_exponent<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      flag, static_cast<const uint4*>(values), num_packs, bits);
}

}  // namespace fullshard::engine
