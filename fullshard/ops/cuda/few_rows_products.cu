// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/few_rows_products.h"

namespace fullshard::ops {
namespace {

constexpr int kWarps = 8;
constexpr int kTile = 16;  // outputs of a block: rows of an mma's first operand
constexpr int kGroup = 8;  // input rows of one mma: columns of its second

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

// A block makes kTile outputs of all rows; its warps share the width step by step, and their sums
// are added in the order of the warps. A sum over the width may take its terms in any order that
// both operands agree on, so a thread reads 16 bytes of a row and hands them to two mma.
template <int kGroups>
__global__ void __launch_bounds__(kWarps* kWarp)
    few_rows_kernel(const FewRowsProducts products, int64_t num_outputs) {
  __shared__ float sums[kWarps][kGroups * kGroup][kTile + 1];
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
  const int64_t first = tile * kTile, width = products.width;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int row = lane / 4, place = lane % 4;
  // Outputs and rows beyond the last read the last again; nobody looks at what they make.
  const auto* weight = static_cast<const Bf16*>(own.weight) + place * kPack<Bf16>;
  const Bf16* upper = weight + min(first + row, own.num_outputs - 1) * width;
  const Bf16* lower = weight + min(first + row + 8, own.num_outputs - 1) * width;
  const Bf16* inputs[kGroups];
#pragma unroll
  for (int group = 0; group < kGroups; ++group) {
    const int64_t input_row =
        min(static_cast<int64_t>(group * kGroup + row), products.num_rows - 1);
    inputs[group] =
        static_cast<const Bf16*>(products.input) + input_row * width + place * kPack<Bf16>;
  }
  float parts[kGroups][4] = {};
  const int64_t num_steps = width / kProductStep;
#pragma unroll 4
  for (int64_t step = warp; step < num_steps; step += kWarps) {
    const int64_t at = step * kProductStep;
    const uint4 a = load_once(upper + at), b = load_once(lower + at);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const uint4 x = load_raw(inputs[group] + at);
      multiply_add(parts[group], a.x, b.x, a.y, b.y, x.x, x.y);
      multiply_add(parts[group], a.z, b.z, a.w, b.w, x.z, x.w);
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
  for (int i = threadIdx.x; i < kGroups * kGroup * kTile; i += kWarps * kWarp) {
    const int input_row = i / kTile, output = i % kTile;
    if (input_row >= products.num_rows || first + output >= own.num_outputs) continue;
    float sum = 0;
#pragma unroll
    for (int from = 0; from < kWarps; ++from) sum += sums[from][input_row][output];
    if (own.bias != nullptr) sum += widened(static_cast<const Bf16*>(own.bias)[first + output]);
    const int64_t at = input_row * num_outputs + column + first + output;
    if (products.residual != nullptr)
      sum += widened(static_cast<const Bf16*>(products.residual)[at]);
    static_cast<Bf16*>(products.output)[at] = narrowed<Bf16>(sum);
  }
}

template <int kGroups>
void launch(const FewRowsProducts& products, int64_t num_tiles, int64_t num_outputs,
            cudaStream_t stream) {
  few_rows_kernel<kGroups>
      <<<static_cast<unsigned>(num_tiles), kWarps * kWarp, 0, stream>>>(products, num_outputs);
}

}  // namespace

void multiply_few_rows(const FewRowsProducts& products, cudaStream_t stream) {
  int64_t num_tiles = 0, num_outputs = 0;
  for (int part = 0; part < products.num_weights; ++part) {
    num_tiles += blocks_for(products.weights[part].num_outputs, kTile);
    num_outputs += products.weights[part].num_outputs;
  }
  if (num_tiles == 0 || products.num_rows == 0) return;
  if (products.num_rows <= kGroup) return launch<1>(products, num_tiles, num_outputs, stream);
  if (products.num_rows <= 2 * kGroup) return launch<2>(products, num_tiles, num_outputs, stream);
  launch<4>(products, num_tiles, num_outputs, stream);
}

}  // namespace fullshard::ops
