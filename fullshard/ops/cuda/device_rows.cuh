// SPDX-License-Identifier: Apache-2.0
// What the kernels over rows share: accesses of 16 bytes, and sums in a fixed order, so that the
// same input gives the same bits on every run.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"
#include "fullshard/ops/cuda/largest_parts.h"
#include "fullshard/ops/cuda/partial_rows.h"

namespace fullshard::ops {

using Bf16 = __nv_bfloat16;

// Elements of one access of 16 bytes.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ float widened(Bf16 value) { return __bfloat162float(value); }

template <class T>
__device__ __forceinline__ T narrowed(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else {
    return __float2bfloat16_rn(value);
  }
}

__device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fc00000u); }

// All of a pack, from an address that is a multiple of 16.
template <class T>
__device__ __forceinline__ uint4 load_raw(const T* from) {
  return *reinterpret_cast<const uint4*>(from);
}

template <int kCount, class T>
__device__ __forceinline__ void widen(float (&to)[kCount], const uint4& raw) {
  static_assert(kCount == kPack<T>);
  const T* values = reinterpret_cast<const T*>(&raw);
#pragma unroll
  for (int i = 0; i < kCount; ++i) to[i] = widened(values[i]);
}

// kCount is one element, or all of a pack from an address that is a multiple of 16.
template <int kCount, class T>
__device__ __forceinline__ void load(float (&to)[kCount], const T* from) {
  if constexpr (kCount == 1) {
    to[0] = widened(*from);
  } else {
    widen<kCount, T>(to, load_raw(from));
  }
}

template <int kCount, class T>
__device__ __forceinline__ void store(T* to, const float (&from)[kCount]) {
  if constexpr (kCount == 1) {
    *to = narrowed<T>(from[0]);
  } else {
    static_assert(kCount == kPack<T>);
    uint4 raw;
    T* values = reinterpret_cast<T*>(&raw);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = narrowed<T>(from[i]);
    *reinterpret_cast<uint4*>(to) = raw;
  }
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  return value;
}

// The sum over the kThreads threads of a row: one warp, or the whole block. All of them get it.
template <int kThreads>
__device__ __forceinline__ float row_sum(float value) {
  value = warp_sum(value);
  if constexpr (kThreads == kWarp) {
    return value;
  } else {
    constexpr int kWarps = kThreads / kWarp;
    __shared__ float parts[kWarps];
    __syncthreads();  // an earlier sum may still be read
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += parts[i];
    return sum;
  }
}

// The largest magnitude among what a thread has stored, as bits: those of magnitudes are ordered as
// the numbers are, NaN above infinity.
struct LargestStored {
  uint32_t bits = 0;

  template <int kCount>
  __device__ __forceinline__ void see(const float (&values)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) bits = max(bits, __float_as_uint(values[i]) & 0x7fffffffu);
  }

  // Into one of the parts of largest_parts.h, which were zero, rounded as it was stored. Threads of
  // a warp that come together leave one.
  template <class T>
  __device__ __forceinline__ void leave(float* parts, int64_t number) const {
    const unsigned active = __activemask();
    const uint32_t stored = __float_as_uint(widened(narrowed<T>(__uint_as_float(bits))));
    const uint32_t largest = __reduce_max_sync(active, stored);
    if (static_cast<int>(threadIdx.x % kWarp) != __ffs(static_cast<int>(active)) - 1) return;
    auto* part = reinterpret_cast<unsigned*>(parts + number % kLargestParts);
    if (largest > 0) atomicMax(part, largest);
  }
};

// Whether rows that begin here, `stride` elements apart, may be read 16 bytes at a time.
template <class T>
bool is_packable(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kPack<T> == 0;
}

// Where a kernel is to leave its largest magnitude; null: nowhere.
inline void clear_largest(float* parts, cudaStream_t stream) {
  if (parts != nullptr) cudaMemsetAsync(parts, 0, kLargestParts * sizeof(float), stream);
}

// Calls `use` with a null pointer of the type that holds the elements.
template <class Use>
void with_element(KernelDtype dtype, const Use& use) {
  if (dtype == KernelDtype::fp32) {
    use(static_cast<float*>(nullptr));
  } else {
    use(static_cast<Bf16*>(nullptr));
  }
}

}  // namespace fullshard::ops
