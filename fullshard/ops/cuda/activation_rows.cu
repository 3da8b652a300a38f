// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/ops/cuda/activated_value.cuh"
#include "fullshard/ops/cuda/activation_rows.h"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/dropout_factors.cuh"

namespace fullshard::ops {
namespace {

constexpr int kThreads = 128;

// A thread owns kCount columns and takes every gridDim.y-th row.
template <class T, int kCount, RowActivation kKind, bool kDrops>
__global__ void __launch_bounds__(kThreads)
    forward_rows(T* output, ActivationRows rows, float* largest) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (column >= rows.width) return;
  const T* inputs = static_cast<const T*>(rows.input) + column;
  const T* ups = static_cast<const T*>(rows.up) + column;
  LargestStored stored;
  const FoundDraw found(rows.dropout.draw);
  if (kDrops && column == 0 && blockIdx.y == 0) found.leave(rows.dropout.drawn);
  for (int64_t row = blockIdx.y; row < rows.num_rows; row += gridDim.y) {
    float values[kCount], factors[kCount];
    load<kCount>(values, inputs + row * rows.stride);
    if (rows.up != nullptr) load<kCount>(factors, ups + row * rows.stride);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      values[i] = activated<T, kKind>(values[i]).value * (rows.up != nullptr ? factors[i] : 1.0f);
    }
    if constexpr (kDrops) {
      load_factors<kCount>(factors, found, row * rows.width + column, rows.dropout);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values[i] *= factors[i];
    }
    store<kCount>(output + row * rows.width + column, values);
    if (largest != nullptr) stored.see(values);
  }
  if (largest != nullptr) stored.leave<T>(largest, blockIdx.y * gridDim.x + blockIdx.x);
}

template <class T, int kCount, RowActivation kKind, bool kDrops>
__global__ void __launch_bounds__(kThreads)
    backward_rows(ActivationGradientRows gradients, ActivationRows rows) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCount;
  if (column >= rows.width) return;
  const bool is_gated = rows.up != nullptr;
  const T* inputs = static_cast<const T*>(rows.input) + column;
  const T* ups = static_cast<const T*>(rows.up) + column;
  LargestStored stored;
  const FoundDraw found(rows.dropout.draw);
  for (int64_t row = blockIdx.y; row < rows.num_rows; row += gridDim.y) {
    const int64_t dense = row * rows.width + column;
    const int64_t spread = row * gradients.gradient_stride + column;
    float x[kCount], factors[kCount], to[kCount], results[kCount], to_factors[kCount];
    [[maybe_unused]] float kept[kCount];
    load<kCount>(x, inputs + row * rows.stride);
    load<kCount>(to, static_cast<const T*>(gradients.output_gradient) + dense);
    if (is_gated) load<kCount>(factors, ups + row * rows.stride);
    if constexpr (kDrops) load_factors<kCount>(kept, found, dense, rows.dropout);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const auto [value, slope] = activated<T, kKind>(x[i]);
      const float factor = is_gated ? factors[i] : 1.0f;
      results[i] = value * factor;
      if constexpr (kDrops) {
        results[i] *= kept[i];
        to[i] *= kept[i];
      }
      to_factors[i] = to[i] * value;
      to[i] *= slope * factor;
    }
    store<kCount>(static_cast<T*>(gradients.input_gradient) + spread, to);
    if (is_gated) store<kCount>(static_cast<T*>(gradients.up_gradient) + spread, to_factors);
    if (gradients.output != nullptr) {
      store<kCount>(static_cast<T*>(gradients.output) + dense, results);
    }
    if (gradients.largest == nullptr) continue;
    stored.see(to);
    if (is_gated) stored.see(to_factors);
  }
  if (gradients.largest != nullptr) {
    stored.leave<T>(gradients.largest, blockIdx.y * gridDim.x + blockIdx.x);
  }
}

template <class Use>
void with_kind(RowActivation kind, const Use& use) {
  switch (kind) {
    case RowActivation::gelu:
      return use.template operator()<RowActivation::gelu>();
    case RowActivation::gelu_tanh:
      return use.template operator()<RowActivation::gelu_tanh>();
    case RowActivation::relu:
      return use.template operator()<RowActivation::relu>();
    case RowActivation::silu:
      return use.template operator()<RowActivation::silu>();
  }
}

template <class Use>
void with_flag(bool is_set, const Use& use) {
  if (is_set) {
    use.template operator()<true>();
  } else {
    use.template operator()<false>();
  }
}

// Few enough blocks that each takes some rows, enough to fill every multiprocessor.
dim3 grid_for(const ActivationRows& rows, int count) {
  const int64_t across = blocks_for(rows.width, kThreads * count);
  const int64_t down =
      std::clamp<int64_t>(8448 / across, 1, std::min<int64_t>(rows.num_rows, 65535));
  return dim3(static_cast<unsigned>(across), static_cast<unsigned>(down));
}

template <class T>
bool is_packable_row(const ActivationRows& rows) {
  return rows.width % kPack<T> == 0 && is_packable<T>(rows.input, rows.stride) &&
         is_packable<T>(rows.up, rows.stride);
}

template <class T>
bool is_packable_gradient(const ActivationGradientRows& gradients) {
  return is_packable<T>(gradients.output_gradient, 0) &&
         is_packable<T>(gradients.input_gradient, gradients.gradient_stride) &&
         is_packable<T>(gradients.up_gradient, 0) && is_packable<T>(gradients.output, 0);
}

}  // namespace

void activate_rows(void* output, const ActivationRows& rows, float* largest,
                   tensor::DeviceStream stream) {
  clear_largest(largest, stream);
  if (rows.num_rows == 0 || rows.width == 0) return;
  const bool drops = rows.dropout.threshold > 0;
  with_element(rows.dtype, [&]<class T>(T*) {
    with_kind(rows.kind, [&]<RowActivation kKind>() {
      auto* to = static_cast<T*>(output);
      if (is_packable_row<T>(rows) && is_packable<T>(output, 0)) {
        const auto grid = grid_for(rows, kPack<T>);
        with_flag(drops, [&]<bool kDrops>() {
          forward_rows<T, kPack<T>, kKind, kDrops>
              <<<grid, kThreads, 0, stream>>>(to, rows, largest);
        });
      } else {
        const auto grid = grid_for(rows, 1);
        with_flag(drops, [&]<bool kDrops>() {
          forward_rows<T, 1, kKind, kDrops><<<grid, kThreads, 0, stream>>>(to, rows, largest);
        });
      }
    });
  });
}

void activate_gradient_rows(const ActivationGradientRows& gradients, const ActivationRows& rows,
                            tensor::DeviceStream stream) {
  clear_largest(gradients.largest, stream);
  if (rows.num_rows == 0 || rows.width == 0) return;
  const bool drops = rows.dropout.threshold > 0;
  with_element(rows.dtype, [&]<class T>(T*) {
    with_kind(rows.kind, [&]<RowActivation kKind>() {
      if (is_packable_row<T>(rows) && is_packable_gradient<T>(gradients)) {
        const auto grid = grid_for(rows, kPack<T>);
        with_flag(drops, [&]<bool kDrops>() {
          backward_rows<T, kPack<T>, kKind, kDrops><<<grid, kThreads, 0, stream>>>(gradients, rows);
        });
      } else {
        const auto grid = grid_for(rows, 1);
        with_flag(drops, [&]<bool kDrops>() {
          backward_rows<T, 1, kKind, kDrops><<<grid, kThreads, 0, stream>>>(gradients, rows);
        });
      }
    });
  });
}

}  // namespace fullshard::ops
