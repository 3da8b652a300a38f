// SPDX-License-Identifier: Apache-2.0
#include <cuda_pipeline.h>

#include <algorithm>

#include "fullshard/ops/cuda/dependent_launch.cuh"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/few_rows_products.h"
#include "fullshard/ops/cuda/few_rows_tiles.cuh"

namespace fullshard::ops {
namespace {

// Of a block: most products have more tiles than there are multiprocessors, and two blocks on each
// of them, so that one begins while the other ends. Long sums of few outputs have one larger block.
constexpr int kWarps = 8, kThreads = kWarps * kWarp;
constexpr int kManyWarps = 16;
constexpr int kTile = 16;  // outputs of a block: rows of an mma's first operand
constexpr int kGroup = 8;  // input rows of one mma: columns of its second
constexpr int kMostRows = static_cast<int>(kMostRowsOfProducts);
// Of shared memory, for the rows of a block, so that two blocks fit a multiprocessor of Hopper;
// more of them are read from the cache at every use.
constexpr int64_t kMostStagedBytes = 100 * 1024;
constexpr int64_t kStagedPadding = 32;  // elements: rows begin in other banks

template <int kNumWarps>
inline constexpr int kBlocksEach = 2 * kWarps / kNumWarps;  // of a multiprocessor

// c [16, 8] += a [16, 16] * b [16, 8], spread over a warp as mma.m16n8k16 has it.
__device__ __forceinline__ void multiply_add(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                             uint32_t a3, uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint4 load_once(const Bf16* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));  // weights are not read again
}

// What a norm takes away from a row's elements, and multiplies them with.
struct RowScale {
  float mean, inverse;
};

struct RowScales {
  float parts[kMostRows][kWarps];
  RowScale of_row[kMostRows];
};

// Rows of a block's own, or of everybody.
struct Rows {
  const Bf16* first;
  int64_t stride;  // elements

  __device__ __forceinline__ const Bf16* at(int64_t row, int64_t column) const {
    return first + row * stride + column;
  }
};

// The block's sum of term(value, row) over each row, in an order that knows nothing of other rows.
template <class Term>
__device__ __forceinline__ void sum_rows(RowScales& scales, const Rows& rows,
                                         const FewRowsProducts& products, const Term& term) {
  constexpr int kCount = kPack<Bf16>;
  const int warp = threadIdx.x / kWarp, num_rows = static_cast<int>(products.num_rows);
#pragma unroll 4
  for (int row = 0; row < num_rows; ++row) {
    const float mean = scales.of_row[row].mean;
    float sum = 0;
    for (int64_t i = threadIdx.x * kCount; i < products.width; i += kThreads * kCount) {
      float values[kCount];
      widen<kCount, Bf16>(values, load_raw(rows.at(row, i)));
#pragma unroll
      for (float value : values) sum += term(value, mean);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) scales.parts[row][warp] = sum;
  }
  __syncthreads();
}

__device__ __forceinline__ float total_of(const RowScales& scales, int row) {
  float sum = 0;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) sum += scales.parts[row][warp];
  return sum;
}

// Of all rows, for the block.
__device__ __forceinline__ void scale_rows(RowScales& scales, const Rows& rows,
                                           const FewRowsProducts& products) {
  const auto width = static_cast<float>(products.width);
  const int row = threadIdx.x;
  const bool is_of_row = row < products.num_rows;
  if (is_of_row) scales.of_row[row].mean = 0;
  __syncthreads();
  if (products.norm.centred) {
    sum_rows(scales, rows, products, [](float value, float) { return value; });
    if (is_of_row) scales.of_row[row].mean = total_of(scales, row) / width;
    __syncthreads();
  }
  sum_rows(scales, rows, products,
           [](float value, float mean) { return (value - mean) * (value - mean); });
  if (is_of_row) {
    scales.of_row[row].inverse =
        1.0f / sqrtf(total_of(scales, row) / width + products.norm.epsilon);
  }
  __syncthreads();
}

// Rounded where norm_rows.cu rounds.
__device__ __forceinline__ uint4 normalised(const uint4& raw, const float (&weight)[kPack<Bf16>],
                                            const float (&bias)[kPack<Bf16>], bool centred,
                                            const RowScale& scale) {
  constexpr int kCount = kPack<Bf16>;
  float values[kCount];
  widen<kCount, Bf16>(values, raw);
  uint4 result;
  Bf16* to = reinterpret_cast<Bf16*>(&result);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float value = (values[i] - scale.mean) * scale.inverse;
    const float kept = centred ? value : widened(narrowed<Bf16>(value));
    to[i] = narrowed<Bf16>(weight[i] * kept + bias[i]);
  }
  return result;
}

// Of all rows, to rows that may be the same: a thread writes what it has read, and nothing else.
__device__ __forceinline__ void norm_rows(Bf16* to, int64_t stride, const Rows& rows,
                                          RowScales& scales, const FewRowsProducts& products) {
  constexpr int kCount = kPack<Bf16>;
  const FewRowsNorm& norm = products.norm;
  scale_rows(scales, rows, products);
  for (int64_t i = threadIdx.x * kCount; i < products.width; i += kThreads * kCount) {
    float weight[kCount], bias[kCount] = {};
    load<kCount>(weight, static_cast<const Bf16*>(norm.weight) + i);
    if (norm.bias != nullptr) load<kCount>(bias, static_cast<const Bf16*>(norm.bias) + i);
#pragma unroll 4
    for (int row = 0; row < products.num_rows; ++row) {
      *reinterpret_cast<uint4*>(to + row * stride + i) =
          normalised(load_raw(rows.at(row, i)), weight, bias, norm.centred, scales.of_row[row]);
    }
  }
}

// All rows to shared memory, past the registers: a thread asks for all of its elements at once, and
// has them when this returns. Others need a __syncthreads().
template <int kNumWarps>
__device__ __forceinline__ void bring_rows(Bf16* to, int64_t stride,
                                           const FewRowsProducts& products) {
  constexpr int kCount = kPack<Bf16>, kStep = kNumWarps * kWarp * kCount;
  const auto* const from = static_cast<const Bf16*>(products.input);
  for (int64_t i = threadIdx.x * kCount; i < products.width; i += kStep) {
    for (int row = 0; row < products.num_rows; ++row) {
      __pipeline_memcpy_async(to + row * stride + i, from + row * products.width + i,
                              sizeof(uint4));
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

// The two rows of weights that a thread reads, beside each other in an mma's first operand.
struct WeightRows {
  const Bf16 *upper, *lower;
};

// A few steps of both, on their way.
template <int kAhead, int kNumWarps>
struct WeightsAhead {
  uint4 upper[kAhead], lower[kAhead];

  __device__ __forceinline__ void load_from(const WeightRows& rows, int64_t step,
                                            int64_t num_steps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      // Steps beyond the last read the last again; they are not used.
      const int64_t at = min(step + i * kNumWarps, num_steps - 1) * kProductStep;
      upper[i] = load_once(rows.upper + at);
      lower[i] = load_once(rows.lower + at);
    }
  }
};

// Outputs beyond the last read the last again; nobody looks at what they make.
__device__ __forceinline__ WeightRows rows_of_thread(const OutputTile& tile, bool is_gated,
                                                     int64_t width) {
  const int row = threadIdx.x % kWarp / 4, place = threadIdx.x % 4;
  const int64_t last = tile.weight.num_outputs - 1;
  const int64_t upper = min(tile.first + row, last);
  const int64_t lower = is_gated ? upper : min(tile.first + row + 8, last);
  return {static_cast<const Bf16*>(tile.weight.weight) + upper * width + place * kPack<Bf16>,
          static_cast<const Bf16*>(tile.beside.weight) + lower * width + place * kPack<Bf16>};
}

template <int kGroups, int kNumWarps>
using WarpSums = TileSums<kNumWarps, kGroups * kGroup, kTile>;

// Steps whose weights a warp asks for at a time: as many as find room in registers, twice.
template <int kGroups, bool kStaged>
inline constexpr int kStepsAhead = kStaged&& kGroups < 4 ? 4 : 2;

// A block makes tiles of kTile outputs of all rows, one after the other; its warps share the width
// step by step, and their sums are added in the order of the warps. A sum over the width may take
// its terms in any order that both operands agree on, so a thread reads 16 bytes of a row and hands
// them to two mma. Staged rows lie in shared memory, normed; others must be normed already.
template <int kGroups, bool kStaged, int kNumWarps>
__global__ void __launch_bounds__(kNumWarps* kWarp, kBlocksEach<kNumWarps>)
    few_rows_kernel(const FewRowsProducts products, int64_t num_tiles, int64_t num_outputs) {
  extern __shared__ uint4 staged[];
  __shared__ WarpSums<kGroups, kNumWarps> sums;
  constexpr int kAhead = kStepsAhead<kGroups, kStaged>;
  const bool is_gated = products.activation.is_gated;
  const int64_t width = products.width, num_steps = width / kProductStep;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = lane / 4, place = lane % 4;
  int64_t index = blockIdx.x;
  OutputTile tile = tile_at<kTile>(products, index);
  WeightRows rows = rows_of_thread(tile, is_gated, width);
  // Weights are nobody's result: they come while the kernel before this one ends.
  WeightsAhead<kAhead, kNumWarps> now, next;
  now.load_from(rows, warp, num_steps);
  next.load_from(rows, warp + kAhead * kNumWarps, num_steps);
  wait_for_previous();
  let_next_begin();
  const Bf16* inputs[kGroups];
  const int64_t stride = kStaged ? width + kStagedPadding : width;
  auto* const own_rows = reinterpret_cast<Bf16*>(staged);
  if constexpr (kStaged) {
    bring_rows<kNumWarps>(own_rows, stride, products);
    if constexpr (kNumWarps == kWarps) {
      __shared__ RowScales scales;
      if (products.norm.weight != nullptr) {
        norm_rows(own_rows, stride, {own_rows, stride}, scales, products);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int64_t input_row =
        min(static_cast<int64_t>(group * kGroup + row), products.num_rows - 1);
    inputs[group] = (kStaged ? own_rows : static_cast<const Bf16*>(products.input)) +
                    input_row * stride + place * kPack<Bf16>;
  }
  while (true) {
    float parts[kGroups][4] = {};
    for (int64_t step = warp; step < num_steps; step += kAhead * kNumWarps) {
      uint4 x[kAhead][kGroups];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int64_t at = min(step + i * kNumWarps, num_steps - 1) * kProductStep;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) x[i][group] = load_raw(inputs[group] + at);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (step + i * kNumWarps >= num_steps) break;
#pragma unroll
        for (int group = 0; group < kGroups; ++group) {
          multiply_add(parts[group], now.upper[i].x, now.lower[i].x, now.upper[i].y, now.lower[i].y,
                       x[i][group].x, x[i][group].y);
          multiply_add(parts[group], now.upper[i].z, now.lower[i].z, now.upper[i].w, now.lower[i].w,
                       x[i][group].z, x[i][group].w);
        }
      }
      now = next;
      if (step + 2 * kAhead * kNumWarps < num_steps) {
        next.load_from(rows, step + 2 * kAhead * kNumWarps, num_steps);
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      auto* to = sums[warp] + group * kGroup;
      to[2 * place][row] = parts[group][0];
      to[2 * place + 1][row] = parts[group][1];
      to[2 * place][row + 8] = parts[group][2];
      to[2 * place + 1][row + 8] = parts[group][3];
    }
    const OutputTile made = tile;
    index += gridDim.x;
    if (index < num_tiles) {  // the next tile's come while this one is stored
      tile = tile_at<kTile>(products, index);
      rows = rows_of_thread(tile, is_gated, width);
      now.load_from(rows, warp, num_steps);
      next.load_from(rows, warp + kAhead * kNumWarps, num_steps);
    }
    __syncthreads();
    store_tile<Bf16, kNumWarps, kGroups * kGroup, kTile>(sums, made, products, num_outputs);
    if (index >= num_tiles) return;
    __syncthreads();
  }
}

// For rows that are not normed beside the products: a block each.
__global__ void __launch_bounds__(kThreads) norm_few_rows_kernel(FewRowsProducts products) {
  __shared__ RowScales scales;
  wait_for_previous();
  let_next_begin();
  const int64_t first = blockIdx.x * products.width;
  products.input = static_cast<const Bf16*>(products.input) + first;
  products.num_rows = 1;
  norm_rows(static_cast<Bf16*>(products.output) + first, products.width,
            {static_cast<const Bf16*>(products.input), products.width}, scales, products);
}

int64_t staged_bytes(int64_t num_rows, int64_t width) {
  return num_rows * (width + kStagedPadding) * static_cast<int64_t>(sizeof(Bf16));
}

// What a block may have beside what the kernel declares: less than a multiprocessor has, and on
// GPUs other than those of data centres less than 100 KiB.
template <int kGroups, int kNumWarps>
int64_t most_staged_bytes() {
  constexpr int64_t kDeclared =
      sizeof(WarpSums<kGroups, kNumWarps>) + (kNumWarps == kWarps ? sizeof(RowScales) : 0);
  int device = 0, of_block = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&of_block, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return std::min(kMostStagedBytes, of_block - kDeclared);
}

template <int kGroups, bool kStaged, int kNumWarps>
void launch(const FewRowsProducts& products, int64_t num_tiles, int64_t num_outputs,
            cudaStream_t stream) {
  const auto kernel = few_rows_kernel<kGroups, kStaged, kNumWarps>;
  const int bytes = kStaged ? static_cast<int>(staged_bytes(products.num_rows, products.width)) : 0;
  if (bytes > 0) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
  const int64_t most = int64_t{kBlocksEach<kNumWarps>} * num_multiprocessors();
  const dim3 grid(static_cast<unsigned>(std::min(num_tiles, most)));
  launch_dependent(kernel, {grid, kNumWarps * kWarp, bytes}, stream, products, num_tiles,
                   num_outputs);
}

template <int kGroups, int kNumWarps>
void launch_where_it_fits(const FewRowsProducts& products, int64_t num_tiles, int64_t num_outputs,
                          cudaStream_t stream) {
  const int64_t bytes = staged_bytes(products.num_rows, products.width);
  if (bytes <= most_staged_bytes<kGroups, kNumWarps>()) {
    launch<kGroups, true, kNumWarps>(products, num_tiles, num_outputs, stream);
  } else {
    launch<kGroups, false, kNumWarps>(products, num_tiles, num_outputs, stream);
  }
}

template <int kNumWarps>
void launch_groups(const FewRowsProducts& products, int64_t num_tiles, int64_t num_outputs,
                   cudaStream_t stream) {
  if (products.num_rows <= kGroup) {
    launch_where_it_fits<1, kNumWarps>(products, num_tiles, num_outputs, stream);
  } else if (products.num_rows <= 2 * kGroup) {
    launch_where_it_fits<2, kNumWarps>(products, num_tiles, num_outputs, stream);
  } else {
    launch_where_it_fits<4, kNumWarps>(products, num_tiles, num_outputs, stream);
  }
}

}  // namespace

void norm_few_rows(void* output, const FewRowsProducts& products, tensor::DeviceStream stream) {
  FewRowsProducts rows = products;
  rows.output = output;
  if (rows.num_rows == 0) return;
  launch_dependent(norm_few_rows_kernel, {dim3(static_cast<unsigned>(rows.num_rows)), kThreads, 0},
                   stream, rows);
}

void multiply_few_rows(const FewRowsProducts& products, tensor::DeviceStream stream) {
  const auto [num_tiles, num_outputs] = count_tiles<kTile>(products);
  if (num_tiles == 0 || products.num_rows == 0) return;
  // By the weights alone, so that a row's sums are the same beside any others.
  const bool is_long = products.width >= kLongWidth && num_tiles <= num_multiprocessors();
  if (is_long) {
    launch_groups<kManyWarps>(products, num_tiles, num_outputs, stream);
  } else {
    launch_groups<kWarps>(products, num_tiles, num_outputs, stream);
  }
}

}  // namespace fullshard::ops
