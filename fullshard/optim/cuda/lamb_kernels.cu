// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/cuda/device_rules.h"
#include "fullshard/optim/cuda/step_kernel.cuh"

namespace fullshard::optim {
namespace {

// The first pass reads gradients and writes states, which the rule of the second does not.
template <class Number>
struct MomentsRule : LambRule<Number> {
  using LambRule<Number>::LambRule;
  static constexpr bool kReadsGradient = true;
};

// The same order of additions in every run: down the lanes of a warp, then over the warps.
__device__ LambSquares sum_of_block(LambSquares own) {
  __shared__ LambSquares of_warps[kStepThreads / 32];
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    own.parameter += __shfl_down_sync(0xffffffffu, own.parameter, lanes);
    own.direction += __shfl_down_sync(0xffffffffu, own.direction, lanes);
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  LambSquares total{0, 0};
  for (const auto& warp : of_warps) {
    total.parameter += warp.parameter;
    total.direction += warp.direction;
  }
  return total;
}

template <class Rule, class Types>
__global__ void __launch_bounds__(kStepThreads)
    moments_kernel(const __grid_constant__ DeviceLaunch launch,
                   const __grid_constant__ LaunchSettings<Rule> settings) {
  using Real = typename Types::Real;
  using Elements = StepElements<Rule, Types>;
  const DeviceBlock block = launch.blocks[blockIdx.x];
  const DevicePiece piece = launch.pieces[block.piece];
  Rule rule = settings.rules[piece.setting - launch.first_setting];
  if (!prepare(rule, launch, piece, factor_of(launch))) return;

  LambSquares sums{0, 0};
  const auto update = [&](Real& master, Real gradient, Real& first, Real& second) {
    const auto direction = static_cast<double>(rule.moments(master, gradient, first, second));
    const auto parameter = static_cast<double>(master);
    sums.parameter += parameter * parameter;
    sums.direction += direction * direction;
  };
  const auto take = [&]<int N>(int64_t i) {
    const auto raw = Elements::template load<N>(piece, i);
    Real master[N], first[N], second[N];
    Elements::template apply<N>(piece, raw, master, first, second, update);
    Elements::template store_states<N>(piece, i, first, second);
  };
  over_chunk(
      piece, block.chunk * kDeviceChunk,
      [&]<int Unroll>(int64_t i, int64_t stride) {
#pragma unroll
        for (int u = 0; u < Unroll; ++u) take.template operator()<4>(i + u * stride);
      },
      [&](int64_t i) { take.template operator()<1>(i); });
  const auto total = sum_of_block(sums);
  if (threadIdx.x == 0) launch.squares[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kStepThreads)
    squares_kernel(const DevicePiece* pieces, const LambSquares* squares, LambSquares* by_tensor) {
  const DevicePiece& piece = pieces[blockIdx.x];
  LambSquares own{0, 0};
  for (int block = static_cast<int>(threadIdx.x); block < piece.num_blocks; block += kStepThreads) {
    own.parameter += squares[piece.first_block + block].parameter;
    own.direction += squares[piece.first_block + block].direction;
  }
  const auto total = sum_of_block(own);
  if (threadIdx.x == 0) by_tensor[piece.tensor] = total;
}

__global__ void ratios_kernel(const LambSquares* by_shard, int num_shards, int num_tensors,
                              TrustRatioBounds bounds, float* ratios) {
  const int tensor = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (tensor >= num_tensors) return;
  LambSquares sums{0, 0};
  for (int shard = 0; shard < num_shards; ++shard) {
    sums.parameter += by_shard[shard * num_tensors + tensor].parameter;
    sums.direction += by_shard[shard * num_tensors + tensor].direction;
  }
  const auto parameter = static_cast<float>(sqrt(sums.parameter));
  const auto direction = static_cast<float>(sqrt(sums.direction));
  float ratio = 1;
  if (parameter != 0 && direction != 0) {
    ratio = parameter / direction;
    ratio = ratio < bounds.least ? bounds.least : (bounds.most < ratio ? bounds.most : ratio);
  }
  ratios[tensor] = ratio;
}

}  // namespace

void launch_step(const DeviceLaunch& launch, const LambStep* settings,
                 tensor::DeviceStream stream) {
  launch_rule<LambRule>(launch, settings, stream);
}

void launch_moments(const DeviceLaunch& launch, const LambStep* settings,
                    tensor::DeviceStream stream) {
  if (launch.num_blocks == 0) return;
  with_types(launch.storage, [&]<class Types>() {
    using Rule = MomentsRule<typename Types::Real>;
    moments_kernel<Rule, Types>
        <<<static_cast<unsigned>(launch.num_blocks), kStepThreads, 0, stream>>>(
            launch, settings_of<Rule>(launch, settings));
  });
}

void launch_squares_by_tensor(const DevicePiece* pieces, int num_pieces, const LambSquares* squares,
                              LambSquares* by_tensor, tensor::DeviceStream stream) {
  if (num_pieces == 0) return;
  squares_kernel<<<static_cast<unsigned>(num_pieces), kStepThreads, 0, stream>>>(pieces, squares,
                                                                                 by_tensor);
}

void launch_trust_ratios(const LambSquares* by_shard, int num_shards, int num_tensors,
                         TrustRatioBounds bounds, float* ratios, tensor::DeviceStream stream) {
  if (num_tensors == 0) return;
  const auto blocks = static_cast<unsigned>((num_tensors + kStepThreads - 1) / kStepThreads);
  ratios_kernel<<<blocks, kStepThreads, 0, stream>>>(by_shard, num_shards, num_tensors, bounds,
                                                     ratios);
}

}  // namespace fullshard::optim
