// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/segment_sums.h"

namespace fullshard::ops {
namespace {

// A block takes kChunk neighbours of the sorted indices. What belongs to one index is a segment: a
// segment inside a chunk is added to the table at once. One that crosses the edges of chunks leaves
// a partial sum in each, in the chunk's second place where it begins, in the first where it goes
// on; the second kernel adds them up. So a frequent index does not make one long chain, and no
// addition depends on timing.
constexpr int64_t kChunk = kSegmentChunk;
constexpr int kThreads = 128;
constexpr int kAhead = 4;  // rows that are read before the first is added

template <int kCount>
__device__ __forceinline__ void add_to(float* place, const float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) place[i] += sums[i];
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads) chunk_sums(SegmentRows rows) {
  __shared__ int64_t indices[kChunk + 2], order[kChunk];
  const int64_t begin = blockIdx.x * kChunk;
  const int num = static_cast<int>(min(kChunk, rows.num_rows - begin));
  for (int i = threadIdx.x; i < num + 2; i += kThreads) {
    const int64_t at = begin + i - 1;  // the neighbours on both sides too; -1 beyond the ends
    indices[i] = at >= 0 && at < rows.num_rows ? rows.sorted[at] : -1;
    if (i < num) order[i] = rows.order[begin + i];
  }
  __syncthreads();
  const int64_t column = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kCount;
  if (column >= rows.width) return;
  const T* from = static_cast<const T*>(rows.rows) + column;
  float sums[kCount] = {};
  bool began_here = indices[1] != indices[0];
  for (int first = 0; first < num; first += kAhead) {
    float values[kAhead][kCount];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i < num) load<kCount>(values[i], from + order[first + i] * rows.width);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int at = first + i;
      if (at >= num) continue;
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] += values[i][j];
      const int64_t index = indices[at + 1];
      const bool ends = indices[at + 2] != index;
      if (!ends && at + 1 < num) continue;
      if (began_here && ends) {
        if (index != rows.skipped) add_to<kCount>(rows.table + index * rows.width + column, sums);
      } else {
        float* place =
            rows.partials + (2 * blockIdx.x + (began_here ? 1 : 0)) * rows.width + column;
#pragma unroll
        for (int j = 0; j < kCount; ++j) place[j] = sums[j];
      }
#pragma unroll
      for (int j = 0; j < kCount; ++j) sums[j] = 0;
      began_here = true;
    }
  }
}

// One block per chunk: the segment that begins in it and goes on beyond, if there is one.
__global__ void __launch_bounds__(kThreads) crossing_sums(SegmentRows rows, int64_t num_chunks) {
  const int64_t chunk = blockIdx.x, end = (chunk + 1) * kChunk;
  if (end >= rows.num_rows) return;
  const int64_t index = rows.sorted[end - 1];
  if (rows.sorted[end] != index || index == rows.skipped) return;
  const int64_t begin = chunk * kChunk;
  if (begin > 0 && rows.sorted[begin] == index && rows.sorted[begin - 1] == index) return;
  for (int64_t column = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
       column < rows.width; column += static_cast<int64_t>(gridDim.y) * kThreads) {
    float sum = rows.partials[(2 * chunk + 1) * rows.width + column];
    for (int64_t next = chunk + 1; next < num_chunks && rows.sorted[next * kChunk] == index;
         ++next) {
      sum += rows.partials[2 * next * rows.width + column];
    }
    rows.table[index * rows.width + column] += sum;
  }
}

}  // namespace

void add_segments(const SegmentRows& rows, tensor::DeviceStream stream) {
  if (rows.num_rows == 0 || rows.width == 0) return;
  const int64_t num_chunks = num_segment_chunks(rows.num_rows);
  const auto across = [&](int count) {
    return dim3(static_cast<unsigned>(num_chunks),
                static_cast<unsigned>(blocks_for(rows.width, kThreads * count)));
  };
  with_element(rows.dtype, [&]<class T>(T*) {
    const bool packs = is_packable<T>(rows.rows, rows.width);
    if (packs) {
      chunk_sums<T, kPack<T>><<<across(kPack<T>), kThreads, 0, stream>>>(rows);
    } else {
      chunk_sums<T, 1><<<across(1), kThreads, 0, stream>>>(rows);
    }
  });
  crossing_sums<<<across(1), kThreads, 0, stream>>>(rows, num_chunks);
}

}  // namespace fullshard::ops
