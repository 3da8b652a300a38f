// SPDX-License-Identifier: Apache-2.0
// Products of a few rows of fp32, which tensor cores do not multiply without rounding them first.
#include <algorithm>

#include "fullshard/ops/cuda/dependent_launch.cuh"
#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/few_rows_tiles.cuh"

namespace fullshard::ops {
namespace {

constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kTile = 4;                   // outputs of a block at a time
constexpr int kCount = kPack<float>;       // elements of one access
constexpr int64_t kStep = kWarp * kCount;  // of the width, that a warp takes at a time

// Blocks of a multiprocessor: sums of many rows fill its registers.
template <int kRows>
inline constexpr int kBlocksEach = kRows <= 16 ? 2 : 1;

// Steps whose weights a warp asks for before it multiplies: as many as find room in registers.
template <int kRows>
inline constexpr int kStepsAhead = kRows <= 4 ? 2 : 1;

struct WideWeights {
  const float* rows[kTile];
};

// Outputs beyond the last read the last again; their sums are not stored.
__device__ __forceinline__ WideWeights weights_of(const OutputTile& tile, bool is_gated,
                                                  int64_t width) {
  const int64_t last = tile.weight.num_outputs - 1;
  WideWeights weights;
#pragma unroll
  for (int i = 0; i < kTile; ++i) {
    const bool is_beside = is_gated && i >= kTile / 2;
    const int64_t output = min(tile.first + (is_beside ? i - kTile / 2 : i), last);
    const auto& from = is_beside ? tile.beside : tile.weight;
    weights.rows[i] = static_cast<const float*>(from.weight) + output * width;
  }
  return weights;
}

// The weights of some steps; zero beyond the width.
template <int kAhead>
struct WideStep {
  float4 weights[kAhead][kTile];

  __device__ __forceinline__ void load_from(const WideWeights& from, int64_t column,
                                            int64_t width) {
#pragma unroll
    for (int ahead = 0; ahead < kAhead; ++ahead) {
      const int64_t at = column + ahead * kWarps * kStep;
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        weights[ahead][i] = at < width ? __ldcs(reinterpret_cast<const float4*>(from.rows[i] + at))
                                       : float4{0, 0, 0, 0};
      }
    }
  }
};

__device__ __forceinline__ float product_sum(float sum, const float4& a, const float4& b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// A block makes tiles of kTile outputs of all rows, one after the other; its warps share the width,
// and a warp's lanes each step. A row's terms are added in an order that knows nothing of others.
template <int kRows>
__global__ void __launch_bounds__(kThreads, kBlocksEach<kRows>)
    few_wide_rows_kernel(const FewRowsProducts products, int64_t num_tiles, int64_t num_outputs) {
  constexpr int kAhead = kStepsAhead<kRows>;
  __shared__ TileSums<kWarps, kRows, kTile> sums;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t width = products.width, first = warp * kStep + lane * kCount;
  const bool is_gated = products.activation.is_gated;
  const auto* const input = static_cast<const float*>(products.input);
  int64_t index = blockIdx.x;
  OutputTile tile = tile_at<kTile>(products, index);
  WideStep<kAhead> now;
  // Weights come while the kernel before this one ends.
  now.load_from(weights_of(tile, is_gated, width), first, width);
  wait_for_previous();
  let_next_begin();
  while (true) {
    const WideWeights weights = weights_of(tile, is_gated, width);
    float parts[kRows][kTile] = {};
    for (int64_t column = first; column < width; column += kAhead * kWarps * kStep) {
      WideStep<kAhead> next;
      next.load_from(weights, column + kAhead * kWarps * kStep, width);
#pragma unroll
      for (int ahead = 0; ahead < kAhead; ++ahead) {
        const int64_t at = min(column + ahead * kWarps * kStep, width - kCount);
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          const int64_t from = min(static_cast<int64_t>(row), products.num_rows - 1) * width + at;
          const float4 x = *reinterpret_cast<const float4*>(input + from);
#pragma unroll
          for (int i = 0; i < kTile; ++i) {
            parts[row][i] = product_sum(parts[row][i], now.weights[ahead][i], x);
          }
        }
      }
      now = next;
    }
    const OutputTile made = tile;
    index += gridDim.x;
    if (index < num_tiles) {  // the next tile's come while this one is stored
      tile = tile_at<kTile>(products, index);
      now.load_from(weights_of(tile, is_gated, width), first, width);
    }
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
#pragma unroll
      for (int i = 0; i < kTile; ++i) {
        const float sum = warp_sum(parts[row][i]);
        if (lane == 0) sums[warp][row][i] = sum;
      }
    }
    __syncthreads();
    store_tile<float, kWarps, kRows, kTile>(sums, made, products, num_outputs);
    if (index >= num_tiles) return;
    __syncthreads();
  }
}

template <int kRows>
void launch(const FewRowsProducts& products, cudaStream_t stream) {
  const auto [num_tiles, num_outputs] = count_tiles<kTile>(products);
  const int64_t most = int64_t{kBlocksEach<kRows>} * num_multiprocessors();
  const dim3 grid(static_cast<unsigned>(std::min(num_tiles, most)));
  launch_dependent(few_wide_rows_kernel<kRows>, {grid, kThreads, 0}, stream, products, num_tiles,
                   num_outputs);
}

}  // namespace

void multiply_few_wide_rows(const FewRowsProducts& products, tensor::DeviceStream stream) {
  if (products.num_rows == 0 || count_tiles<kTile>(products).tiles == 0) return;
  if (products.num_rows == 1) return launch<1>(products, stream);
  if (products.num_rows <= 4) return launch<4>(products, stream);
  if (products.num_rows <= 8) return launch<8>(products, stream);
  if (products.num_rows <= 16) return launch<16>(products, stream);
  launch<kMostRowsOfProducts>(products, stream);
}

}  // namespace fullshard::ops
