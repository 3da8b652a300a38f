// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/activated_value.cuh"
#include "fullshard/ops/cuda/dependent_launch.cuh"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/few_rows_products.h"

namespace fullshard::ops {
namespace {

constexpr int kWarps = 8;
constexpr int kTile = 16;  // outputs of a block: rows of an mma's first operand
constexpr int kGroup = 8;  // input rows of one mma: columns of its second

// Steps whose weights a warp asks for at a time: as many as find room in registers, twice.
template <int kGroups, bool kNorm>
inline constexpr int kStepsAhead = kGroups == 4 ? 2
                                   : kNorm      ? 3
                                                : 4;

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

template <class Term>
__device__ __forceinline__ float sum_of_row(const Bf16* row, int64_t width, const Term& term) {
  float sum = 0;
  for (int64_t i = threadIdx.x % kWarp * kPack<Bf16>; i < width; i += kWarp * kPack<Bf16>) {
    float values[kPack<Bf16>];
    load<kPack<Bf16>>(values, row + i);
#pragma unroll
    for (float value : values) sum += term(value);
  }
  return warp_sum(sum);
}

// A warp takes a row, whatever other rows there are.
__device__ void scale_rows(RowScale* scales, const FewRowsProducts& products) {
  const auto width = static_cast<float>(products.width);
  for (int64_t row = threadIdx.x / kWarp; row < products.num_rows; row += kWarps) {
    const Bf16* values = static_cast<const Bf16*>(products.input) + row * products.width;
    float mean = 0;
    if (products.norm.centred) {
      mean = sum_of_row(values, products.width, [](float value) { return value; }) / width;
    }
    const float squares = sum_of_row(values, products.width,
                                     [=](float value) { return (value - mean) * (value - mean); });
    if (threadIdx.x % kWarp == 0) {
      scales[row] = {mean, 1.0f / sqrtf(squares / width + products.norm.epsilon)};
    }
  }
}

// Rounded where norm_rows.cu rounds.
__device__ __forceinline__ uint4 normalised(const uint4& raw, int64_t at, const FewRowsNorm& norm,
                                            const RowScale& scale) {
  constexpr int kCount = kPack<Bf16>;
  float values[kCount], weight[kCount], bias[kCount] = {};
  widen<kCount, Bf16>(values, raw);
  load<kCount>(weight, static_cast<const Bf16*>(norm.weight) + at);
  if (norm.bias != nullptr) load<kCount>(bias, static_cast<const Bf16*>(norm.bias) + at);
  uint4 result;
  Bf16* to = reinterpret_cast<Bf16*>(&result);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float value = (values[i] - scale.mean) * scale.inverse;
    const float kept = norm.centred ? value : widened(narrowed<Bf16>(value));
    to[i] = narrowed<Bf16>(weight[i] * kept + bias[i]);
  }
  return result;
}

// The two rows of weights that a thread reads, beside each other in an mma's first operand.
struct WeightRows {
  const Bf16 *upper, *lower;
};

// A few steps of both, on their way.
template <int kAhead>
struct WeightsAhead {
  uint4 upper[kAhead], lower[kAhead];

  __device__ __forceinline__ void load_from(const WeightRows& rows, int64_t step,
                                            int64_t num_steps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      // Steps beyond the last read the last again; they are not used.
      const int64_t at = min(step + i * kWarps, num_steps - 1) * kProductStep;
      upper[i] = load_once(rows.upper + at);
      lower[i] = load_once(rows.lower + at);
    }
  }
};

// Where a block's outputs lie: a tile of one of the weights, or of two that belong together.
struct OutputTile {
  FewRowsWeight weight, beside;
  int64_t column, first;  // of the weight's outputs among all; of the tile's in the weight
};

__device__ __forceinline__ OutputTile tile_of_block(const FewRowsProducts& products) {
  if (products.activation.is_gated) {
    return {products.weights[0], products.weights[1], 0,
            static_cast<int64_t>(blockIdx.x) * (kTile / 2)};
  }
  FewRowsWeight own = products.weights[0];
  int64_t column = 0, tile = blockIdx.x;
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

__device__ __forceinline__ float with_bias(float sum, const FewRowsWeight& weight, int64_t output) {
  return weight.bias == nullptr ? sum
                                : sum + widened(static_cast<const Bf16*>(weight.bias)[output]);
}

// A block makes kTile outputs of all rows; its warps share the width step by step, and their sums
// are added in the order of the warps. A sum over the width may take its terms in any order that
// both operands agree on, so a thread reads 16 bytes of a row and hands them to two mma.
template <int kGroups, bool kNorm>
__global__ void __launch_bounds__(kWarps* kWarp, 2)
    few_rows_kernel(const FewRowsProducts products, int64_t num_outputs) {
  __shared__ float sums[kWarps][kGroups * kGroup][kTile + 1];
  __shared__ RowScale scales[kGroups * kGroup];
  const OutputTile tile = tile_of_block(products);
  const bool is_gated = products.activation.is_gated;
  const int64_t width = products.width, num_steps = width / kProductStep;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = lane / 4, place = lane % 4;
  const WeightRows rows = rows_of_thread(tile, is_gated, width);
  // Weights are nobody's result: they come while the kernel before this one ends.
  constexpr int kAhead = kStepsAhead<kGroups, kNorm>;
  WeightsAhead<kAhead> now, next;
  now.load_from(rows, warp, num_steps);
  next.load_from(rows, warp + kAhead * kWarps, num_steps);
  wait_for_previous();
  let_next_begin();
  if constexpr (kNorm) {
    scale_rows(scales, products);
    __syncthreads();
  }
  const Bf16* inputs[kGroups];
  RowScale own_scales[kGroups];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int64_t input_row =
        min(static_cast<int64_t>(group * kGroup + row), products.num_rows - 1);
    inputs[group] =
        static_cast<const Bf16*>(products.input) + input_row * width + place * kPack<Bf16>;
    if constexpr (kNorm) own_scales[group] = scales[input_row];
  }
  float parts[kGroups][4] = {};
  for (int64_t step = warp; step < num_steps; step += kAhead * kWarps) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (step + i * kWarps >= num_steps) break;
      const int64_t at = (step + i * kWarps) * kProductStep;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) {
        uint4 x = load_raw(inputs[group] + at);
        if constexpr (kNorm) {
          x = normalised(x, at + place * kPack<Bf16>, products.norm, own_scales[group]);
        }
        multiply_add(parts[group], now.upper[i].x, now.lower[i].x, now.upper[i].y, now.lower[i].y,
                     x.x, x.y);
        multiply_add(parts[group], now.upper[i].z, now.lower[i].z, now.upper[i].w, now.lower[i].w,
                     x.z, x.w);
      }
    }
    now = next;
    if (step + 2 * kAhead * kWarps < num_steps) {
      next.load_from(rows, step + 2 * kAhead * kWarps, num_steps);
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
  __syncthreads();
  const auto sum_of = [&](int input_row, int output) {
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kWarps; ++from) sum += sums[from][input_row][output];
    return sum;
  };
  const int num_own = is_gated ? kTile / 2 : kTile;
  for (int i = threadIdx.x; i < kGroups * kGroup * num_own; i += kWarps * kWarp) {
    const int input_row = i / num_own, output = i % num_own;
    const int64_t place_in_weight = tile.first + output;
    if (input_row >= products.num_rows || place_in_weight >= tile.weight.num_outputs) continue;
    float sum = with_bias(sum_of(input_row, output), tile.weight, place_in_weight);
    const int64_t at = input_row * num_outputs + tile.column + place_in_weight;
    if (products.residual != nullptr)
      sum += widened(static_cast<const Bf16*>(products.residual)[at]);
    if (products.activation.is_wanted) {  // of what the plain product would have stored
      sum = activated_value<Bf16>(widened(narrowed<Bf16>(sum)), products.activation.kind);
    }
    if (is_gated) {
      sum *= widened(narrowed<Bf16>(
          with_bias(sum_of(input_row, output + kTile / 2), tile.beside, place_in_weight)));
    }
    static_cast<Bf16*>(products.output)[at] = narrowed<Bf16>(sum);
  }
}

template <int kGroups>
void launch(const FewRowsProducts& products, int64_t num_tiles, int64_t num_outputs,
            cudaStream_t stream) {
  const auto kernel = products.norm.weight == nullptr ? few_rows_kernel<kGroups, false>
                                                      : few_rows_kernel<kGroups, true>;
  launch_dependent(kernel, dim3(static_cast<unsigned>(num_tiles)), kWarps * kWarp, stream, products,
                   num_outputs);
}

}  // namespace

void multiply_few_rows(const FewRowsProducts& products, cudaStream_t stream) {
  int64_t num_tiles = 0, num_outputs = 0;
  if (products.activation.is_gated) {
    num_outputs = products.weights[0].num_outputs;
    num_tiles = blocks_for(num_outputs, kTile / 2);
  } else {
    for (int part = 0; part < products.num_weights; ++part) {
      num_tiles += blocks_for(products.weights[part].num_outputs, kTile);
      num_outputs += products.weights[part].num_outputs;
    }
  }
  if (num_tiles == 0 || products.num_rows == 0) return;
  if (products.num_rows <= kGroup) return launch<1>(products, num_tiles, num_outputs, stream);
  if (products.num_rows <= 2 * kGroup) return launch<2>(products, num_tiles, num_outputs, stream);
  launch<4>(products, num_tiles, num_outputs, stream);
}

}  // namespace fullshard::ops
