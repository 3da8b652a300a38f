// SPDX-License-Identifier: Apache-2.0
#include <cuda/std/limits>

#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/entropy_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;

// The sum of exp(x - highest) over what was seen so far, and of x itself.
struct Seen {
  float highest, exponentials, values;
};

__device__ __forceinline__ Seen joined(const Seen& left, const Seen& right) {
  const float highest = fmaxf(left.highest, right.highest);
  // Nothing seen yet: -inf - -inf would be NaN.
  const float from_left = left.exponentials == 0 ? 0 : __expf(left.highest - highest);
  const float from_right = right.exponentials == 0 ? 0 : __expf(right.highest - highest);
  return {highest, left.exponentials * from_left + right.exponentials * from_right,
          left.values + right.values};
}

__device__ __forceinline__ Seen joined_over_warp(Seen seen) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const Seen other{__shfl_xor_sync(0xffffffffu, seen.highest, offset),
                     __shfl_xor_sync(0xffffffffu, seen.exponentials, offset),
                     __shfl_xor_sync(0xffffffffu, seen.values, offset)};
    seen = joined(seen, other);
  }
  return seen;
}

__device__ __forceinline__ Seen joined_over_block(Seen seen) {
  __shared__ Seen parts[kWarps];
  seen = joined_over_warp(seen);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = seen;
  __syncthreads();
  return joined_over_warp(parts[threadIdx.x % kWarp]);
}

template <int kCount>
__device__ __forceinline__ void see(Seen& seen, const float (&values)[kCount]) {
  float highest = seen.highest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) highest = fmaxf(highest, values[i]);
  if (highest > seen.highest) {
    seen.exponentials *= seen.exponentials == 0 ? 0 : __expf(seen.highest - highest);
    seen.highest = highest;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    seen.exponentials += __expf(values[i] - highest);
    seen.values += values[i];
  }
}

// Target of every class and what comes on top for the label.
struct Target {
  int64_t label;
  float everywhere, extra;
};

template <int kCount>
__device__ __forceinline__ void to_gradient(float (&values)[kCount], int64_t first,
                                            const Seen& seen, float inverse, const Target& target) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float share = __expf(values[i] - seen.highest) * inverse;
    values[i] = share - target.everywhere - (first + i == target.label ? target.extra : 0.0f);
  }
}

// One row per block: its second reading finds it in the cache. Packs first, then the tail that is
// no whole pack.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) loss_rows(EntropyRows rows) {
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(rows.logits) + row * rows.row_stride;
  const int64_t vocabulary = rows.vocabulary, tail = vocabulary / kCount * kCount;
  const int64_t label = rows.labels[row];
  constexpr int kStep = kThreads * kCount;
  if (label == rows.ignore_index) {
    if (threadIdx.x == 0) rows.losses[row] = 0;
    if (!rows.wants_gradient) return;
    const float zeros[kCount] = {};
    for (int64_t i = threadIdx.x * kCount; i < tail; i += kStep) store<kCount>(logits + i, zeros);
    for (int64_t i = tail + threadIdx.x; i < vocabulary; i += kThreads) logits[i] = narrowed<T>(0);
    return;
  }
  Seen seen{-cuda::std::numeric_limits<float>::infinity(), 0, 0};
#pragma unroll 4
  for (int64_t i = threadIdx.x * kCount; i < tail; i += kStep) {
    float values[kCount];
    load<kCount>(values, logits + i);
    see<kCount>(seen, values);
  }
  for (int64_t i = tail + threadIdx.x; i < vocabulary; i += kThreads) {
    const float value[1] = {widened(logits[i])};
    see<1>(seen, value);
  }
  const bool is_known = label >= 0 && label < vocabulary;
  const float own =
      is_known ? widened(logits[label]) : cuda::std::numeric_limits<float>::quiet_NaN();
  seen = joined_over_block(seen);  // also: every thread has read before the first one writes
  if (threadIdx.x == 0) {
    const float total = seen.highest + logf(seen.exponentials);
    const float mean = seen.values / static_cast<float>(vocabulary);
    rows.losses[row] = (1.0f - rows.smoothing) * (total - own) +
                       (rows.smoothing > 0 ? rows.smoothing * (total - mean) : 0.0f);
  }
  if (!rows.wants_gradient) return;
  const float inverse = 1.0f / seen.exponentials;
  const Target target{label, rows.smoothing / static_cast<float>(vocabulary),
                      1.0f - rows.smoothing};
#pragma unroll 4
  for (int64_t i = threadIdx.x * kCount; i < tail; i += kStep) {
    float values[kCount];
    load<kCount>(values, logits + i);
    to_gradient<kCount>(values, i, seen, inverse, target);
    store<kCount>(logits + i, values);
  }
  for (int64_t i = tail + threadIdx.x; i < vocabulary; i += kThreads) {
    float value[1] = {widened(logits[i])};
    to_gradient<1>(value, i, seen, inverse, target);
    logits[i] = narrowed<T>(value[0]);
  }
}

}  // namespace

void entropy_rows(const EntropyRows& rows, cudaStream_t stream) {
  if (rows.num_rows == 0 || rows.vocabulary == 0) return;
  with_element(rows.dtype, [&]<class T>(T*) {
    const bool packs = is_packable<T>(rows.logits, rows.row_stride);
    const auto kernel = packs ? loss_rows<T, kPack<T>> : loss_rows<T, 1>;
    kernel<<<static_cast<unsigned>(rows.num_rows), kThreads, 0, stream>>>(rows);
  });
}

}  // namespace fullshard::ops
