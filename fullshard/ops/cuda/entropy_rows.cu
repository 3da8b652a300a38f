// SPDX-License-Identifier: Apache-2.0
#include <cuda/std/limits>

#include "fullshard/ops/cuda/approximate.cuh"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/entropy_rows.h"

namespace fullshard::ops {
namespace {

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

// Over so many lanes that lie side by side, a power of two.
template <int kLanes>
__device__ __forceinline__ Seen joined_over_lanes(Seen seen) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    const Seen other{__shfl_xor_sync(0xffffffffu, seen.highest, offset),
                     __shfl_xor_sync(0xffffffffu, seen.exponentials, offset),
                     __shfl_xor_sync(0xffffffffu, seen.values, offset)};
    seen = joined(seen, other);
  }
  return seen;
}

template <int kThreads>
__device__ __forceinline__ Seen joined_over_block(Seen seen) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ Seen parts[kWarps];
  seen = joined_over_lanes<kWarp>(seen);
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = seen;
  __syncthreads();
  return joined_over_lanes<kWarps>(parts[threadIdx.x % kWarps]);
}

constexpr float kMinusInfinity = -cuda::std::numeric_limits<float>::infinity();

template <int kCount>
__device__ __forceinline__ void see(Seen& seen, const float (&values)[kCount], bool sums_values) {
  float highest = seen.highest;
#pragma unroll
  for (int i = 0; i < kCount; ++i) highest = fmaxf(highest, values[i]);
  if (highest > seen.highest) {
    seen.exponentials *= seen.exponentials == 0 ? 0 : __expf(seen.highest - highest);
    seen.highest = highest;
  }
  // All of them -inf, as masked classes are: their exponentials are 0, not NaN.
  const float subtracted = highest == kMinusInfinity ? 0.0f : -highest * kLog2OfE;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    seen.exponentials += power_of_two(fmaf(values[i], kLog2OfE, subtracted));
  }
  if (!sums_values) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) seen.values += values[i];
}

// Target of every class and what comes on top for the label.
struct Target {
  int label;
  float everywhere, extra;
};

// `subtracted` is what makes shares of powers of two. One thread of a row has the label.
template <int kCount>
__device__ __forceinline__ void to_gradient(float (&values)[kCount], int first, float subtracted,
                                            const Target& target) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    values[i] = power_of_two(fmaf(values[i], kLog2OfE, subtracted)) - target.everywhere;
  }
  if (static_cast<unsigned>(target.label - first) >= kCount) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (first + i == target.label) values[i] -= target.extra;
  }
}

// One row per block: its second reading finds it in the cache. Packs first, then the tail that is
// no whole pack.
template <class T, int kCount, int kThreads>
__global__ void __launch_bounds__(kThreads) loss_rows(EntropyRows rows) {
  const int64_t row = blockIdx.x;
  T* logits = static_cast<T*>(rows.logits) + row * rows.row_stride;
  const int vocabulary = static_cast<int>(rows.vocabulary), tail = vocabulary / kCount * kCount;
  const int64_t label = rows.labels[row];
  constexpr int kStep = kThreads * kCount;
  if (label == rows.ignore_index) {
    if (threadIdx.x == 0) rows.losses[row] = 0;
    if (!rows.wants_gradient) return;
    const float zeros[kCount] = {};
    for (int i = threadIdx.x * kCount; i < tail; i += kStep) store<kCount>(logits + i, zeros);
    for (int i = tail + threadIdx.x; i < vocabulary; i += kThreads) logits[i] = narrowed<T>(0);
    return;
  }
  Seen seen{kMinusInfinity, 0, 0};
  const bool is_smoothed = rows.smoothing > 0;
#pragma unroll 4
  for (int i = threadIdx.x * kCount; i < tail; i += kStep) {
    float values[kCount];
    load<kCount>(values, logits + i);
    see<kCount>(seen, values, is_smoothed);
  }
  for (int i = tail + threadIdx.x; i < vocabulary; i += kThreads) {
    const float value[1] = {widened(logits[i])};
    see<1>(seen, value, is_smoothed);
  }
  const bool is_known = label >= 0 && label < vocabulary;
  const float own =
      is_known ? widened(logits[label]) : cuda::std::numeric_limits<float>::quiet_NaN();
  seen =
      joined_over_block<kThreads>(seen);  // also: every thread has read before the first one writes
  if (threadIdx.x == 0) {
    const float total = seen.highest + logf(seen.exponentials);
    const float mean = seen.values / static_cast<float>(vocabulary);
    rows.losses[row] = (1.0f - rows.smoothing) * (total - own) +
                       (is_smoothed ? rows.smoothing * (total - mean) : 0.0f);
  }
  if (!rows.wants_gradient) return;
  const float subtracted = -seen.highest * kLog2OfE - log2f(seen.exponentials);
  const Target target{is_known ? static_cast<int>(label) : -1,
                      rows.smoothing / static_cast<float>(vocabulary), 1.0f - rows.smoothing};
#pragma unroll 4
  for (int i = threadIdx.x * kCount; i < tail; i += kStep) {
    float values[kCount];
    load<kCount>(values, logits + i);
    to_gradient<kCount>(values, i, subtracted, target);
    store<kCount>(logits + i, values);
  }
  for (int i = tail + threadIdx.x; i < vocabulary; i += kThreads) {
    float value[1] = {widened(logits[i])};
    to_gradient<1>(value, i, subtracted, target);
    logits[i] = narrowed<T>(value[0]);
  }
}

// Of short rows more are under way at a time, by smaller blocks; so many long ones would drive each
// other out of the cache.
constexpr int64_t kShortRow = 64 << 10;

template <class T, int kCount>
void launch(const EntropyRows& rows, cudaStream_t stream) {
  const auto count = static_cast<unsigned>(rows.num_rows);
  if (rows.vocabulary * static_cast<int64_t>(sizeof(T)) <= kShortRow) {
    loss_rows<T, kCount, 512><<<count, 512, 0, stream>>>(rows);
  } else {
    loss_rows<T, kCount, 1024><<<count, 1024, 0, stream>>>(rows);
  }
}

}  // namespace

void entropy_rows(const EntropyRows& rows, tensor::DeviceStream stream) {
  if (rows.num_rows == 0 || rows.vocabulary == 0) return;
  with_element(rows.dtype, [&]<class T>(T*) {
    const bool packs = is_packable<T>(rows.logits, rows.row_stride);
    const auto start = packs ? launch<T, kPack<T>> : launch<T, 1>;
    start(rows, stream);
  });
}

}  // namespace fullshard::ops
