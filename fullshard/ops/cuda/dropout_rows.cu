// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/dropout_factors.cuh"
#include "fullshard/ops/cuda/dropout_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kDropThreads = 256;

template <int kCount, class T>
__device__ __forceinline__ void drop_part(const DropoutRows& rows, int64_t at,
                                          const float* factors) {
  float values[kCount];
  load(values, static_cast<const T*>(rows.values) + at);
#pragma unroll
  for (int i = 0; i < kCount; ++i) values[i] *= factors[i];
  if (rows.residual != nullptr) {
    float added[kCount];
    load(added, static_cast<const T*>(rows.residual) + at);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] += added[i];
  }
  store(static_cast<T*>(rows.output) + at, values);
}

// kCount elements at a time: one, or a pack.
template <class T, int kCount>
__global__ void __launch_bounds__(kDropThreads) drop_kernel(DropoutRows rows) {
  const FoundDraw found(rows.dropout.draw);
  if (blockIdx.x == 0 && threadIdx.x == 0) found.leave(rows.dropout.drawn);
  const int64_t step = static_cast<int64_t>(gridDim.x) * kDropThreads;
  int64_t group = static_cast<int64_t>(blockIdx.x) * kDropThreads + threadIdx.x;
  for (; group * kGroup < rows.count; group += step) {
    const GroupFactors factors(found, group, rows.dropout);
#pragma unroll
    for (int i = 0; i < kGroup; i += kCount) {
      const int64_t at = group * kGroup + i;
      if (kCount > 1 || at < rows.count) drop_part<kCount, T>(rows, at, factors.of + i);
    }
  }
}

template <class T>
void launch_drop(const DropoutRows& rows, cudaStream_t stream) {
  constexpr int64_t kMostDropBlocks = 132 * 16;  // more than a large GPU holds at once only queue
  const int64_t blocks = blocks_for(rows.count, int64_t{kDropThreads} * kGroup);
  const auto grid = static_cast<unsigned>(blocks < kMostDropBlocks ? blocks : kMostDropBlocks);
  const bool is_whole = rows.count % kGroup == 0 && is_packable<T>(rows.output, kGroup) &&
                        is_packable<T>(rows.values, kGroup) &&
                        is_packable<T>(rows.residual, kGroup);
  if (is_whole) {
    drop_kernel<T, kPack<T>><<<grid, kDropThreads, 0, stream>>>(rows);
  } else {
    drop_kernel<T, 1><<<grid, kDropThreads, 0, stream>>>(rows);
  }
}

}  // namespace

void drop_rows(const DropoutRows& rows, tensor::DeviceStream stream) {
  if (rows.count == 0) return;
  with_element(rows.dtype, [&]<class T>(T*) { launch_drop<T>(rows, stream); });
}

}  // namespace fullshard::ops
