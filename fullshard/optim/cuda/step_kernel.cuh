// SPDX-License-Identifier: Apache-2.0
// The kernel that every update rule shares: a thread block takes one chunk of one piece, a thread
// four elements at a time, with kStepUnroll of them in flight. Blocks run from the last to the
// first: the norm, which came before, has left the last gradients in the cache.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "fullshard/optim/cuda/device_piece.h"
#include "fullshard/optim/cuda/stored_vectors.cuh"

namespace fullshard::optim {

constexpr int kStepThreads = 128;
constexpr int kStepUnroll = 2;
// So few on an SM that registers hold everything in flight: more of them would begin to compute
// sooner and ask the memory for less at a time.
constexpr int kStepBlocks = 4;

template <class Rule>
struct LaunchSettings {
  Rule rules[kSettingsPerLaunch];
};

// Which of the arrays have a dtype that is known when the kernel is compiled.
template <class R, class M, class G, class S>
struct StepTypes {
  using Real = R;
  using Master = M;
  using Gradient = G;
  using State = S;
};
using Fp32Types = StepTypes<float, float, float, float>;
using InHalvesTypes = StepTypes<float, InHalves, float, float>;
using Bf16GradientTypes = StepTypes<float, float, Bf16, float>;
using AnyTypes = StepTypes<float, AnyStored, AnyStored, AnyStored>;
using Fp64Types = StepTypes<double, AnyStored, AnyStored, AnyStored>;

// `Shown` is AnyStored where nothing is shown, too.
template <class Rule, class Types, class Shown = AnyStored>
struct StepElements {
  using Real = typename Types::Real;
  static constexpr bool kInHalves = std::is_same_v<typename Types::Master, InHalves>;

  template <int N>
  struct Loaded {
    StoredVector<typename Types::Master, N> master;
    StoredVector<typename Types::Gradient, N> gradient;
    StoredVector<typename Types::State, N> states[2];
  };

  template <int N>
  __device__ static Loaded<N> load(const DevicePiece& piece, int64_t i) {
    Loaded<N> raw;
    if constexpr (kInHalves) {
      raw.master.load(piece.master, piece.shown, i);
    } else {
      raw.master.load(piece.master, i);
    }
    if constexpr (Rule::kReadsGradient) raw.gradient.load(piece.gradient, i);
    if constexpr (Rule::kStates > 0) raw.states[0].load(piece.states[0], i);
    if constexpr (Rule::kStates > 1) raw.states[1].load(piece.states[1], i);
    return raw;
  }

  // Applies `use` to the widened values, one element at a time.
  template <int N, class Use>
  __device__ static void apply(const DevicePiece& piece, const Loaded<N>& raw, Real (&master)[N],
                               Real (&first)[N], Real (&second)[N], const Use& use) {
    Real gradient[N] = {};
    raw.master.widen(piece.master.stored, master);
    if constexpr (Rule::kReadsGradient) raw.gradient.widen(piece.gradient.stored, gradient);
    if constexpr (Rule::kStates > 0) raw.states[0].widen(piece.states[0].stored, first);
    if constexpr (Rule::kStates > 1) raw.states[1].widen(piece.states[1].stored, second);
#pragma unroll
    for (int k = 0; k < N; ++k) use(master[k], gradient[k], first[k], second[k]);
  }

  template <int N>
  __device__ static void store_states(const DevicePiece& piece, int64_t i, const Real (&first)[N],
                                      const Real (&second)[N]) {
    using State = typename Types::State;
    if constexpr (Rule::kStates > 0) StoredVector<State, N>::store(piece.states[0], i, first);
    if constexpr (Rule::kStates > 1) StoredVector<State, N>::store(piece.states[1], i, second);
  }

  // bf16 masters are rounded stochastically; what is shown is the master's value.
  template <int N>
  __device__ static void store_master(const DevicePiece& piece, int64_t i, Real (&master)[N],
                                      uint64_t rounding) {
    if constexpr (kInHalves) {
      return StoredVector<InHalves, N>::store(piece.master, piece.shown, i, master);
    } else {
      store_whole_master(piece, i, master, rounding);
    }
  }

 private:
  template <int N>
  __device__ static void store_whole_master(const DevicePiece& piece, int64_t i, Real (&master)[N],
                                            uint64_t rounding) {
    if constexpr (std::is_same_v<Real, float>) {
      if (StoredVector<typename Types::Master, N>::is(piece.master.stored, StoredAs::bf16)) {
        const auto key = RoundingKey::of_tensor(rounding, piece.name_hash);
#pragma unroll
        for (int k = 0; k < N; ++k) {
          const auto element = static_cast<uint64_t>(piece.first + i + k);
          const auto bits = round_stochastically(master[k], random_bits(key, element));
          master[k] = widened(static_cast<Bf16>(bits));  // the store below is exact then
        }
      } else if (StoredVector<typename Types::Master, N>::is(piece.master.stored, StoredAs::fp16)) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          Fp16 nearest;
          narrow(master[k], nearest);
          master[k] = widened(nearest);
        }
      }
    }
    StoredVector<typename Types::Master, N>::store(piece.master, i, master);
    if (!std::is_same_v<Shown, AnyStored> || piece.shown.data != nullptr) {
      StoredVector<Shown, N>::store(piece.shown, i, master);
    }
  }
};

template <class Rule, class Real>
__device__ void call_rule(const Rule& rule, Real& master, Real gradient, Real& first,
                          Real& second) {
  if constexpr (Rule::kStates == 2) {
    rule(master, gradient, first, second);
  } else if constexpr (Rule::kStates == 1) {
    rule(master, gradient, first);
  } else {
    rule(master, gradient);
  }
}

// Calls whole(i) for every i at which this thread has four elements, kStepUnroll of them at once,
// and single(i) for what is left of the chunk.
template <class Whole, class Single>
__device__ void over_chunk(const DevicePiece& piece, int64_t begin, const Whole& whole,
                           const Single& single) {
  const int64_t end = min(begin + kDeviceChunk, piece.numel);
  int64_t rest = begin;
  if (piece.is_aligned) {
    constexpr int64_t kStride = 4 * kStepThreads;
    rest = begin + (end - begin) / 4 * 4;
    int64_t i = begin + 4 * threadIdx.x;
    for (; i + kStride * (kStepUnroll - 1) + 4 <= rest; i += kStride * kStepUnroll) {
      whole.template operator()<kStepUnroll>(i, kStride);
    }
    for (; i + 4 <= rest; i += kStride) whole.template operator()<1>(i, kStride);
  }
  for (int64_t i = rest + threadIdx.x; i < end; i += kStepThreads) single(i);
}

// The clip that only the device knows; not finite: the step is to be left out.
__device__ inline double factor_of(const DeviceLaunch& launch) {
  return launch.factor != nullptr ? *launch.factor : 1;
}

// The rule of the block's piece; false when the step is to be left out.
template <class Rule>
__device__ bool prepare(Rule& rule, const DeviceLaunch& launch, const DevicePiece& piece,
                        double factor) {
  if (launch.factor != nullptr) rule.clip = static_cast<typename Rule::Real>(factor);
  if constexpr (requires { rule.set_trust_ratio(1.0f); }) {
    if (launch.ratios != nullptr) rule.set_trust_ratio(launch.ratios[piece.tensor]);
  }
  return isfinite(factor);
}

template <class Elements, class Rule>
__device__ void step_chunk(const DevicePiece& piece, int64_t begin, const Rule& rule,
                           uint64_t rounding, bool is_wanted) {
  using Real = typename Elements::Real;
  const auto update = [&](Real& master, Real gradient, Real& first, Real& second) {
    call_rule(rule, master, gradient, first, second);
  };
  const auto finish = [&]<int N>(int64_t i, const typename Elements::template Loaded<N>& raw) {
    Real master[N], first[N], second[N];
    Elements::template apply<N>(piece, raw, master, first, second, update);
    if constexpr (Rule::kReadsGradient) Elements::template store_states<N>(piece, i, first, second);
    Elements::template store_master<N>(piece, i, master, rounding);
  };
  over_chunk(
      piece, begin,
      [&]<int Unroll>(int64_t i, int64_t stride) {
        typename Elements::template Loaded<4> raw[Unroll];
#pragma unroll
        for (int u = 0; u < Unroll; ++u) raw[u] = Elements::template load<4>(piece, i + u * stride);
        if (!is_wanted) return;  // known later than the loads are issued
#pragma unroll
        for (int u = 0; u < Unroll; ++u) finish.template operator()<4>(i + u * stride, raw[u]);
      },
      [&](int64_t i) {
        if (is_wanted) finish.template operator()<1>(i, Elements::template load<1>(piece, i));
      });
}

template <class Rule, class Types>
__global__ void __launch_bounds__(kStepThreads, kStepBlocks)
    step_kernel(const __grid_constant__ DeviceLaunch launch,
                const __grid_constant__ LaunchSettings<Rule> settings) {
  const double factor = factor_of(launch);
  const DeviceBlock block = launch.blocks[gridDim.x - 1 - blockIdx.x];
  const DevicePiece piece = launch.pieces[block.piece];
  Rule rule = settings.rules[piece.setting - launch.first_setting];
  const bool is_wanted = prepare(rule, launch, piece, factor);
  const int64_t begin = block.chunk * kDeviceChunk;
  if constexpr (std::is_same_v<typename Types::Master, float>) {
    // The usual case has no branches between its loads and stores.
    if (piece.shown.stored == StoredAs::bf16) {
      return step_chunk<StepElements<Rule, Types, Bf16>>(piece, begin, rule, launch.rounding,
                                                         is_wanted);
    }
  }
  step_chunk<StepElements<Rule, Types>>(piece, begin, rule, launch.rounding, is_wanted);
}

// Calls `use` with the StepTypes and the Real of the launch's storage.
template <class Use>
void with_types(DeviceStorage storage, const Use& use) {
  switch (storage) {
    case DeviceStorage::fp32:
      return use.template operator()<Fp32Types>();
    case DeviceStorage::fp32_in_halves:
      return use.template operator()<InHalvesTypes>();
    case DeviceStorage::fp32_bf16_gradient:
      return use.template operator()<Bf16GradientTypes>();
    case DeviceStorage::any:
      return use.template operator()<AnyTypes>();
    case DeviceStorage::fp64:
      return use.template operator()<Fp64Types>();
  }
}

template <class Rule, class Step>
LaunchSettings<Rule> settings_of(const DeviceLaunch& launch, const Step* steps) {
  LaunchSettings<Rule> settings{};
  for (int i = 0; i < launch.num_settings; ++i) settings.rules[i] = Rule(steps[i]);
  return settings;
}

template <template <class> class Rule, class Step>
void launch_rule(const DeviceLaunch& launch, const Step* steps, cudaStream_t stream) {
  if (launch.num_blocks == 0) return;
  with_types(launch.storage, [&]<class Types>() {
    using Own = Rule<typename Types::Real>;
    step_kernel<Own, Types><<<static_cast<unsigned>(launch.num_blocks), kStepThreads, 0, stream>>>(
        launch, settings_of<Own>(launch, steps));
  });
}

}  // namespace fullshard::optim
