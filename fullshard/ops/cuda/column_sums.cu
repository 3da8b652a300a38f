// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/column_sums.h"
#include "fullshard/ops/cuda/device_rows.cuh"

namespace fullshard::ops {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;

// A warp takes every (8 * gridDim.y)-th row; its lanes take kCount columns each.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    partial_sums(float* partials, const T* data, int64_t num_rows, int64_t width, int64_t stride) {
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kWarp + lane) * kCount;
  const int64_t step = static_cast<int64_t>(gridDim.y) * kWarps;
  float sums[kCount] = {};
  if (column < width) {
#pragma unroll 4
    for (int64_t row = blockIdx.y * kWarps + warp; row < num_rows; row += step) {
      float values[kCount];
      load<kCount>(values, data + row * stride + column);
#pragma unroll
      for (int i = 0; i < kCount; ++i) sums[i] += values[i];
    }
  }
  __shared__ float shared[kWarps][kCount][kWarp];
#pragma unroll
  for (int i = 0; i < kCount; ++i) shared[warp][i][lane] = sums[i];
  __syncthreads();
  if (warp > 0 || column >= width) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float sum = 0;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) sum += shared[other][i][lane];
    partials[blockIdx.y * width + column + i] = sum;
  }
}

constexpr int kPartialWarps = 16;

__global__ void __launch_bounds__(kPartialWarps* kWarp)
    last_sums(PartialRows first, PartialRows second, int64_t num_rows, int64_t width) {
  const PartialRows own = blockIdx.y == 0 ? first : second;
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kWarp + lane;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t row = warp; row < num_rows; row += kPartialWarps) {
      sum += own.partials[row * width + column];
    }
  }
  __shared__ float shared[kPartialWarps][kWarp];
  shared[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int other = 0; other < kPartialWarps; ++other) total += shared[other][lane];
  own.target[column] = own.accumulate ? own.target[column] + total : total;
}

template <class T, int kCount>
void launch_partial_sums(float* partials, const void* data, int64_t num_rows, int64_t width,
                         int64_t stride, int64_t num_partials, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(blocks_for(width, kWarp * kCount)),
                  static_cast<unsigned>(num_partials));
  partial_sums<T, kCount><<<grid, kThreads, 0, stream>>>(partials, static_cast<const T*>(data),
                                                         num_rows, width, stride);
}

}  // namespace

void column_sums(float* target, bool accumulate, const void* data, KernelDtype dtype,
                 int64_t num_rows, int64_t width, int64_t row_stride, float* partials,
                 tensor::DeviceStream stream) {
  if (width == 0) return;
  const int64_t num_partials = num_partial_rows(num_rows, width, dtype);
  with_element(dtype, [&]<class T>(T*) {
    const bool packs = is_packable<T>(data, row_stride) && width % kPack<T> == 0;
    const auto launch = packs ? launch_partial_sums<T, kPack<T>> : launch_partial_sums<T, 1>;
    launch(partials, data, num_rows, width, row_stride, num_partials, stream);
  });
  sum_partials({target, accumulate, partials}, {}, num_partials, width, stream);
}

void sum_partials(const PartialRows& first, const PartialRows& second, int64_t num_rows,
                  int64_t width, tensor::DeviceStream stream) {
  const unsigned kinds = (first.target != nullptr ? 1 : 0) + (second.target != nullptr ? 1 : 0);
  if (width == 0 || kinds == 0) return;
  const dim3 grid(static_cast<unsigned>(blocks_for(width, kWarp)), kinds);
  last_sums<<<grid, kPartialWarps * kWarp, 0, stream>>>(first.target != nullptr ? first : second,
                                                        second, num_rows, width);
}

}  // namespace fullshard::ops
