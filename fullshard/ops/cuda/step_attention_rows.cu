// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "fullshard/ops/cuda/dependent_launch.cuh"
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/step_attention_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kWarps = 8;
constexpr int kElements = 8;  // that a lane holds of a key

template <class T>
__device__ __forceinline__ void load_elements(float (&to)[kElements], const T* from) {
#pragma unroll
  for (int i = 0; i < kElements; i += kPack<T>) {
    float part[kPack<T>];
    load<kPack<T>>(part, from + i);
#pragma unroll
    for (int place = 0; place < kPack<T>; ++place) to[i + place] = part[place];
  }
}

// A head's new elements as they would be stored: turned, and rounded.
template <class T, int kWidth>
__device__ void load_turned(float* to, const T* from, const StepAttentionRows& step,
                            int64_t position) {
  for (int i = threadIdx.x; i < kWidth / 2; i += kWarps * kWarp) {
    const float low = widened(from[i]), high = widened(from[i + kWidth / 2]);
    if (step.cosines == nullptr) {
      to[i] = low;
      to[i + kWidth / 2] = high;
      continue;
    }
    const float cosine = step.cosines[position * (kWidth / 2) + i];
    const float sine = step.sines[position * (kWidth / 2) + i];
    to[i] = widened(narrowed<T>(low * cosine - high * sine));
    to[i + kWidth / 2] = widened(narrowed<T>(high * cosine + low * sine));
  }
}

// Of the keys that a group of lanes has seen: the largest score, the sum of exponentials under it,
// and the values weighted by them.
struct Seen {
  float largest = -INFINITY;
  float sum = 0;
  float mixed[kElements] = {};

  __device__ void add(float score, const float (&value)[kElements]) {
    const float now = fmaxf(largest, score);
    const float before = expf(largest - now), own = expf(score - now);
    largest = now;
    sum = sum * before + own;
#pragma unroll
    for (int i = 0; i < kElements; ++i) mixed[i] = mixed[i] * before + own * value[i];
  }
};

// One head of one row. A key is kWidth / 8 lanes wide, so a warp looks at several at a time.
template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps* kWarp) step_attention_kernel(StepAttentionRows step) {
  constexpr int kLanes = kWidth / kElements;  // of a key
  constexpr int kKeys = kWarp / kLanes;       // that a warp looks at together
  constexpr int kGroups = kWarps * kKeys;
  __shared__ float query[kWidth], new_key[kWidth], new_value[kWidth];
  __shared__ float largest[kGroups], sums[kGroups], shares[kGroups], mixed[kGroups][kWidth];
  const int64_t row = blockIdx.y, head = blockIdx.x;
  const int64_t sharing = step.num_heads / step.num_kv_heads, kv_head = head / sharing;
  wait_for_previous();
  let_next_begin();
  const int64_t position = step.positions[row];
  const int64_t num_places =
      step.cosines == nullptr ? step.capacity : min(step.capacity, step.num_positions);
  if (position < 0 || position >= num_places) {
    for (int i = threadIdx.x; i < kWidth; i += kWarps * kWarp) {
      static_cast<T*>(step.output)[(row * step.num_heads + head) * kWidth + i] =
          narrowed<T>(not_a_number());
    }
    return;
  }
  const auto* own =
      static_cast<const T*>(step.rows) + row * (step.num_heads + 2 * step.num_kv_heads) * kWidth;
  load_turned<T, kWidth>(query, own + head * kWidth, step, position);
  load_turned<T, kWidth>(new_key, own + (step.num_heads + kv_head) * kWidth, step, position);
  for (int i = threadIdx.x; i < kWidth; i += kWarps * kWarp) {
    new_value[i] = widened(own[(step.num_heads + step.num_kv_heads + kv_head) * kWidth + i]);
  }
  __syncthreads();
  const int64_t cache = (row * step.num_kv_heads + kv_head) * step.capacity * kWidth;
  auto* keys = static_cast<T*>(step.keys) + cache;
  auto* values = static_cast<T*>(step.values) + cache;
  if (head % sharing == 0) {  // nobody reads it in this step
    for (int i = threadIdx.x; i < kWidth; i += kWarps * kWarp) {
      keys[position * kWidth + i] = narrowed<T>(new_key[i]);
      values[position * kWidth + i] = narrowed<T>(new_value[i]);
    }
  }
  const int lane = threadIdx.x % kWarp, group = threadIdx.x / kLanes,
            first = lane % kLanes * kElements;
  float wanted[kElements], key[kElements], value[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) wanted[i] = query[first + i];
  const auto score_of = [&] {
    float score = 0;
#pragma unroll
    for (int i = 0; i < kElements; ++i) score += wanted[i] * key[i];
#pragma unroll
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      score += __shfl_xor_sync(0xffffffffu, score, offset);
    }
    return score * step.scale;
  };
  Seen seen;
  const int64_t begin =
      step.window > 0 && position + 1 > step.window ? position + 1 - step.window : 0;
  // All lanes of a warp go round as often: they exchange their parts of the scores.
  for (int64_t base = begin + threadIdx.x / kWarp * kKeys; base < position; base += kGroups) {
    const int64_t at = base + lane / kLanes;
    const bool is_there = at < position;
    const int64_t line = (is_there ? at : position - 1) * kWidth + first;
    load_elements(key, keys + line);
    load_elements(value, values + line);
    const float score = score_of();
    if (is_there) seen.add(score, value);
  }
  if (threadIdx.x < kWarp) {  // the new one, by the first group
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      key[i] = new_key[first + i];
      value[i] = new_value[first + i];
    }
    const float score = score_of();
    if (group == 0) seen.add(score, value);
  }
  if (lane % kLanes == 0) {
    largest[group] = seen.largest;
    sums[group] = seen.sum;
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) mixed[group][first + i] = seen.mixed[i];
  __syncthreads();
  if (threadIdx.x < kGroups) {
    float most = -INFINITY;
#pragma unroll
    for (int from = 0; from < kGroups; ++from) most = fmaxf(most, largest[from]);
    shares[threadIdx.x] = expf(largest[threadIdx.x] - most);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kWidth; i += kWarps * kWarp) {
    float sum = 0, total = 0;
#pragma unroll 8
    for (int from = 0; from < kGroups; ++from) {
      sum += shares[from] * sums[from];
      total += shares[from] * mixed[from][i];
    }
    static_cast<T*>(step.output)[(row * step.num_heads + head) * kWidth + i] =
        narrowed<T>(total / sum);
  }
}

template <class T, int kWidth>
void launch_step(const StepAttentionRows& step, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(step.num_heads), static_cast<unsigned>(step.num_rows));
  launch_dependent(step_attention_kernel<T, kWidth>, {grid, kWarps * kWarp, 0}, stream, step);
}

template <class T>
void launch_width(const StepAttentionRows& step, cudaStream_t stream) {
  switch (step.width) {
    case 32:
      return launch_step<T, 32>(step, stream);
    case 64:
      return launch_step<T, 64>(step, stream);
    case 128:
      return launch_step<T, 128>(step, stream);
    default:
      return launch_step<T, 256>(step, stream);
  }
}

}  // namespace

void attend_step(const StepAttentionRows& step, KernelDtype dtype, tensor::DeviceStream stream) {
  if (step.num_rows == 0) return;
  with_element(dtype, [&]<class T>(T*) { launch_width<T>(step, stream); });
}

}  // namespace fullshard::ops
