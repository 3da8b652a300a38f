// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/widen_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kThreads = 128;
constexpr int kMostBlocks = 8448;

// One access of 16 bytes, or a single value.
template <class T, int kCount>
__device__ __forceinline__ void widen_some(T* to, const int8_t* from, float scale) {
  if constexpr (kCount == 1) {
    *to = narrowed<T>(static_cast<float>(*from) * scale);
  } else {
    const uint4 raw = *reinterpret_cast<const uint4*>(from);
    const auto* values = reinterpret_cast<const int8_t*>(&raw);
#pragma unroll
    for (int first = 0; first < kCount; first += kPack<T>) {
      float wide[kPack<T>];
#pragma unroll
      for (int i = 0; i < kPack<T>; ++i) wide[i] = static_cast<float>(values[first + i]) * scale;
      store<kPack<T>>(to + first, wide);
    }
  }
}

// A thread owns kCount columns and takes every gridDim.y-th row.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) widen_all(WidenedRows rows) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (column >= rows.width) return;
  for (int64_t row = blockIdx.y; row < rows.num_rows; row += gridDim.y) {
    const int64_t place = row * rows.width + column;
    widen_some<T, kCount>(static_cast<T*>(rows.output) + place, rows.values + place,
                          rows.scales[row]);
  }
}

dim3 widening_grid(const WidenedRows& rows, int count) {
  const int64_t across = blocks_for(rows.width, static_cast<int64_t>(kThreads) * count);
  const int64_t down =
      std::clamp<int64_t>(kMostBlocks / across, 1, std::min<int64_t>(rows.num_rows, 65535));
  return dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
}

}  // namespace

void widen_rows(const WidenedRows& rows, tensor::DeviceStream stream) {
  if (rows.num_rows == 0 || rows.width == 0) return;
  const bool is_packed =
      is_packable<int8_t>(rows.values, rows.width) && is_packable<int8_t>(rows.output, 0);
  with_element(rows.dtype, [&]<class T>(T*) {
    if (is_packed) {
      widen_all<T, kPack<int8_t>>
          <<<widening_grid(rows, kPack<int8_t>), kThreads, 0, stream>>>(rows);
    } else {
      widen_all<T, 1><<<widening_grid(rows, 1), kThreads, 0, stream>>>(rows);
    }
  });
}

}  // namespace fullshard::ops
