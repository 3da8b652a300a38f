// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include <algorithm>

#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/fp8_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kLargestThreads = 512;
constexpr uint32_t kMagnitudes = 0x7fff7fffu;  // of two bf16: all but the signs

// The maximum over a block, as bits: magnitudes are ordered as their bits are, NaN above infinity.
template <int kThreads>
__device__ __forceinline__ uint32_t block_largest(uint32_t value) {
  constexpr int kWarps = kThreads / kWarp;
  __shared__ uint32_t of_warps[kWarps];
  value = __reduce_max_sync(0xffffffffu, value);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) largest = max(largest, of_warps[i]);
  __syncthreads();  // the next one may write
  return largest;
}

__device__ __forceinline__ uint32_t larger(uint32_t largest, const uint4& raw) {
  largest = __vmaxu2(largest, raw.x & kMagnitudes);
  largest = __vmaxu2(largest, raw.y & kMagnitudes);
  largest = __vmaxu2(largest, raw.z & kMagnitudes);
  return __vmaxu2(largest, raw.w & kMagnitudes);
}

__global__ void __launch_bounds__(kLargestThreads)
    largest_kernel(float* parts, bool joins, const uint4* packs, int64_t num_packs) {
  constexpr int kUnrolled = 4;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kLargestThreads;
  uint32_t pair = 0;
  int64_t i = static_cast<int64_t>(blockIdx.x) * kLargestThreads + threadIdx.x;
  for (; i + (kUnrolled - 1) * step < num_packs; i += kUnrolled * step) {
    uint4 raw[kUnrolled];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) raw[u] = packs[i + u * step];
#pragma unroll
    for (int u = 0; u < kUnrolled; ++u) pair = larger(pair, raw[u]);
  }
  for (; i < num_packs; i += step) pair = larger(pair, packs[i]);
  const uint32_t one = max(pair & 0xffffu, pair >> 16) << 16;  // bf16 bits as those of fp32
  uint32_t largest = block_largest<kLargestThreads>(one);
  if (threadIdx.x != 0) return;
  if (joins) largest = max(largest, __float_as_uint(parts[blockIdx.x]));
  parts[blockIdx.x] = __uint_as_float(largest);
}

template <Fp8Kind kKind>
constexpr float kLargestNumber = kKind == Fp8Kind::e4m3 ? 448.0f : 57344.0f;

// What values are multiplied by before they are rounded. Zeros stay zeros; infinities and NaN make
// everything NaN, as they would in the product itself.
template <Fp8Kind kKind, int kThreads>
__device__ __forceinline__ float multiplier_of(const float* parts) {
  uint32_t value = 0;
  for (int i = threadIdx.x; i < kLargestParts; i += kThreads) {
    value = max(value, __float_as_uint(parts[i]));
  }
  const float largest = __uint_as_float(block_largest<kThreads>(value));
  if (largest == 0) return 1;
  return fminf(kLargestNumber<kKind> / largest, 1e30f) + 0 * largest;
}

// Eight values to eight bytes, in order.
template <Fp8Kind kKind>
__device__ __forceinline__ uint2 to_bytes(const uint4& raw, float multiplier) {
  constexpr auto kFormat = kKind == Fp8Kind::e4m3 ? __NV_E4M3 : __NV_E5M2;
  float values[8];
  widen<8, Bf16>(values, raw);
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 two{values[2 * i] * multiplier, values[2 * i + 1] * multiplier};
    pairs[i] = __nv_cvt_float2_to_fp8x2(two, __NV_SATFINITE, kFormat);
  }
  return {pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16};
}

constexpr int kThreads = 256;

template <Fp8Kind kKind>
__global__ void __launch_bounds__(kThreads) flat_kernel(Fp8Targets targets, Fp8Rows rows) {
  const float multiplier = multiplier_of<kKind, kThreads>(rows.parts);
  if (blockIdx.x == 0 && threadIdx.x == 0) *targets.factor = 1.0f / multiplier;
  const auto* from = static_cast<const uint4*>(rows.values);
  auto* to = static_cast<uint4*>(targets.rows);
  const int64_t count = rows.num_rows * rows.width / 16;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const uint4 first = from[2 * i], second = from[2 * i + 1];
    const uint2 low = to_bytes<kKind>(first, multiplier);
    const uint2 high = to_bytes<kKind>(second, multiplier);
    to[i] = {low.x, low.y, high.x, high.y};
  }
}

// A block turns tiles of 128 rows and 64 columns. A thread holds 4 rows of 8 columns: for each
// column its four bytes are one word of the turned tile.
constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kWordsPerColumn = kTileRows / 4;
static_assert((kTileColumns / 8) * kWordsPerColumn == kThreads);

// Bytes b[row][column] of four rows and four columns, as words of a column each.
__device__ __forceinline__ void turn_bytes(uint32_t (&words)[4], const uint32_t (&of_rows)[4]) {
  const uint32_t low01 = __byte_perm(of_rows[0], of_rows[1], 0x5140);
  const uint32_t high01 = __byte_perm(of_rows[0], of_rows[1], 0x7362);
  const uint32_t low23 = __byte_perm(of_rows[2], of_rows[3], 0x5140);
  const uint32_t high23 = __byte_perm(of_rows[2], of_rows[3], 0x7362);
  words[0] = __byte_perm(low01, low23, 0x5410);
  words[1] = __byte_perm(low01, low23, 0x7632);
  words[2] = __byte_perm(high01, high23, 0x5410);
  words[3] = __byte_perm(high01, high23, 0x7632);
}

template <Fp8Kind kKind, bool kKeepsRows>
__global__ void __launch_bounds__(kThreads) turning_kernel(Fp8Targets targets, Fp8Rows rows) {
  __shared__ uint32_t tile[kTileColumns][kWordsPerColumn + 1];
  const float multiplier = multiplier_of<kKind, kThreads>(rows.parts);
  if (blockIdx.x == 0 && threadIdx.x == 0) *targets.factor = 1.0f / multiplier;
  const int64_t across = (rows.width + kTileColumns - 1) / kTileColumns;
  const int64_t num_tiles = across * ((targets.turned_length + kTileRows - 1) / kTileRows);
  const int octet = threadIdx.x % (kTileColumns / 8), quad = threadIdx.x / (kTileColumns / 8);
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  const auto* from = static_cast<const Bf16*>(rows.values);
  for (int64_t number = blockIdx.x; number < num_tiles; number += gridDim.x) {
    const int64_t first_row = number / across * kTileRows;
    const int64_t first_column = number % across * kTileColumns;
    const int64_t column = first_column + octet * 8;
    uint4 raw[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int64_t row = first_row + quad * 4 + r;
      const bool is_inside = row < rows.num_rows && column < rows.width;
      raw[r] = is_inside ? load_raw(from + row * rows.width + column) : uint4{};
    }
    uint32_t low[4], high[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const uint2 bytes = to_bytes<kKind>(raw[r], multiplier);
      low[r] = bytes.x;
      high[r] = bytes.y;
      if constexpr (kKeepsRows) {
        const int64_t row = first_row + quad * 4 + r;
        if (row < rows.num_rows && column < rows.width) {
          auto* to = static_cast<uint8_t*>(targets.rows) + row * rows.width + column;
          *reinterpret_cast<uint2*>(to) = bytes;
        }
      }
    }
    uint32_t words[4];
    turn_bytes(words, low);
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[octet * 8 + c][quad] = words[c];
    turn_bytes(words, high);
#pragma unroll
    for (int c = 0; c < 4; ++c) tile[octet * 8 + 4 + c][quad] = words[c];
    __syncthreads();
    const int64_t row = first_row + lane * 4;
#pragma unroll
    for (int c = warp; c < kTileColumns; c += kThreads / kWarp) {
      if (first_column + c < rows.width && row < targets.turned_length) {
        auto* to = static_cast<uint8_t*>(targets.turned) +
                   (first_column + c) * targets.turned_stride + row;
        *reinterpret_cast<uint32_t*>(to) = tile[c][lane];
      }
    }
    __syncthreads();
  }
}

constexpr int64_t kMostBlocks = 132 * 8;  // what a large GPU holds at once; more only queue

template <Fp8Kind kKind>
void launch_to_fp8(const Fp8Targets& targets, const Fp8Rows& rows, cudaStream_t stream) {
  if (targets.turned == nullptr) {
    const int64_t blocks = blocks_for(rows.num_rows * rows.width, int64_t{kThreads} * 16);
    flat_kernel<kKind>
        <<<static_cast<unsigned>(std::min(blocks, kMostBlocks)), kThreads, 0, stream>>>(targets,
                                                                                        rows);
    return;
  }
  const int64_t tiles =
      blocks_for(rows.width, kTileColumns) * blocks_for(targets.turned_length, kTileRows);
  const auto blocks = static_cast<unsigned>(std::min(tiles, kMostBlocks));
  if (targets.rows != nullptr) {
    turning_kernel<kKind, true><<<blocks, kThreads, 0, stream>>>(targets, rows);
  } else {
    turning_kernel<kKind, false><<<blocks, kThreads, 0, stream>>>(targets, rows);
  }
}

}  // namespace

void largest_values(float* parts, bool joins, const void* values, int64_t count,
                    tensor::DeviceStream stream) {
  largest_kernel<<<kLargestParts, kLargestThreads, 0, stream>>>(
      parts, joins, static_cast<const uint4*>(values), count / kPack<Bf16>);
}

void to_fp8_rows(const Fp8Targets& targets, const Fp8Rows& rows, tensor::DeviceStream stream) {
  if (rows.num_rows == 0 || rows.width == 0) return;
  if (rows.kind == Fp8Kind::e4m3) {
    launch_to_fp8<Fp8Kind::e4m3>(targets, rows, stream);
  } else {
    launch_to_fp8<Fp8Kind::e5m2>(targets, rows, stream);
  }
}

}  // namespace fullshard::ops
