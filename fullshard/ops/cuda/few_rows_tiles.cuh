// SPDX-License-Identifier: Apache-2.0
// How products of few rows are cut into tiles of outputs, and how a tile that is summed is stored.
#pragma once

#include <cuda_runtime.h>

#include "fullshard/ops/cuda/activated_value.cuh"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/few_rows_products.h"

namespace fullshard::ops {

// A tile of the outputs of one of the weights, or of two that belong together.
struct OutputTile {
  FewRowsWeight weight, beside;
  int64_t column, first;  // of the weight's outputs among all; of the tile's in the weight
};

template <int kTile>
__device__ __forceinline__ OutputTile tile_at(const FewRowsProducts& products, int64_t tile) {
  if (products.activation.is_gated) {
    return {products.weights[0], products.weights[1], 0, tile * (kTile / 2)};
  }
  FewRowsWeight own = products.weights[0];
  int64_t column = 0;
#pragma unroll
  for (int next = 1; next < kMostWeights; ++next) {
    const int64_t num_tiles = (own.num_outputs + kTile - 1) / kTile;
    if (next >= products.num_weights || tile < num_tiles) continue;
    tile -= num_tiles;
    column += own.num_outputs;
    own = products.weights[next];
  }
  return {own, own, column, tile * kTile};
}

struct TileCount {
  int64_t tiles, outputs;
};

template <int kTile>
TileCount count_tiles(const FewRowsProducts& products) {
  if (products.activation.is_gated) {
    const int64_t outputs = products.weights[0].num_outputs;
    return {blocks_for(outputs, kTile / 2), outputs};
  }
  TileCount count{0, 0};
  for (int part = 0; part < products.num_weights; ++part) {
    count.tiles += blocks_for(products.weights[part].num_outputs, kTile);
    count.outputs += products.weights[part].num_outputs;
  }
  return count;
}

template <class T>
__device__ __forceinline__ float with_bias(float sum, const FewRowsWeight& weight, int64_t output) {
  return weight.bias == nullptr ? sum : sum + widened(static_cast<const T*>(weight.bias)[output]);
}

// What the warps of a block have summed, each its share of the width.
template <int kNumWarps, int kRows, int kTile>
using TileSums = float[kNumWarps][kRows][kTile + 1];

// The warps' sums in their order, then bias, residual and activation, each rounded to T where the
// plain operators round.
template <class T, int kNumWarps, int kRows, int kTile>
__device__ __forceinline__ void store_tile(const TileSums<kNumWarps, kRows, kTile>& sums,
                                           const OutputTile& tile, const FewRowsProducts& products,
                                           int64_t num_outputs) {
  const auto sum_of = [&](int row, int output) {
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kNumWarps; ++from) sum += sums[from][row][output];
    return sum;
  };
  const bool is_gated = products.activation.is_gated;
  const int num_own = is_gated ? kTile / 2 : kTile;
  for (int i = threadIdx.x; i < kRows * num_own; i += kNumWarps * kWarp) {
    const int row = i / num_own, place = i % num_own;
    const int64_t output = tile.first + place;
    if (row >= products.num_rows || output >= tile.weight.num_outputs) continue;
    float sum = with_bias<T>(sum_of(row, place), tile.weight, output);
    const int64_t at = row * num_outputs + tile.column + output;
    if (products.residual != nullptr) {
      sum += widened(static_cast<const T*>(products.residual)[at]);
    }
    if (products.activation.is_wanted) {  // of what the plain product would have stored
      sum = activated_value<T>(widened(narrowed<T>(sum)), products.activation.kind);
    }
    if (is_gated) {
      const float factor = with_bias<T>(sum_of(row, place + kTile / 2), tile.beside, output);
      sum *= widened(narrowed<T>(factor));
    }
    static_cast<T*>(products.output)[at] = narrowed<T>(sum);
  }
}

inline int num_multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count > 0 ? count : 1;
}

}  // namespace fullshard::ops
