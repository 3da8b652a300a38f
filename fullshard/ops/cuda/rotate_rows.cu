// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/rotate_rows.h"

namespace fullshard::ops {
namespace {

constexpr int kThreads = 256;

template <int kCount>
__device__ __forceinline__ void turn(float (&first)[kCount], float (&second)[kCount],
                                     const RotaryRows& rotary, int64_t row, int64_t place,
                                     float sign) {
  const int64_t position =
      rotary.positions != nullptr ? rotary.positions[row] : row % rotary.sequence;
  const bool is_known = position >= 0 && position < rotary.num_positions;
  const int64_t angle = (is_known ? position : 0) * rotary.half + place;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float cosine = is_known ? rotary.cosines[angle + i] : not_a_number();
    const float sine = sign * rotary.sines[angle + i];
    const float x = first[i], y = second[i];
    first[i] = x * cosine - y * sine;
    second[i] = y * cosine + x * sine;
  }
}

// One thread per kCount pairs.
template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    turn_rows(T* rows, int64_t num_items, int64_t stride, int num_turned, RotaryRows rotary,
              float sign) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= num_items) return;
  const int per_head = static_cast<int>(rotary.half) / kCount;
  const int per_row = per_head * num_turned;
  const int64_t row = item / per_row;
  const int rest = static_cast<int>(item - row * per_row);
  const int head = rest / per_head, place = (rest - head * per_head) * kCount;
  T* first = rows + row * stride + 2 * rotary.half * head + place;
  T* second = first + rotary.half;
  float x[kCount], y[kCount];
  load<kCount>(x, first);
  load<kCount>(y, second);
  turn<kCount>(x, y, rotary, row, place, sign);
  store<kCount>(first, x);
  store<kCount>(second, y);
}

template <class T, int kCount>
__global__ void __launch_bounds__(kThreads)
    pack_rows(T* rows, int64_t num_items, HeadSources sources, RotaryRows rotary) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (item >= num_items) return;
  const int num_heads = static_cast<int>(sources.num_heads);
  const int num_kv_heads = static_cast<int>(sources.num_kv_heads);
  const int per_head = static_cast<int>(rotary.half) / kCount;
  const int all_heads = num_heads + 2 * num_kv_heads;
  const int64_t row = item / (per_head * all_heads);
  const int rest = static_cast<int>(item - row * (per_head * all_heads));
  const int head = rest / per_head, place = (rest - head * per_head) * kCount;
  const bool is_query = head < num_heads, is_value = head >= num_heads + num_kv_heads;
  const void* source = is_query ? sources.query : is_value ? sources.value : sources.key;
  const int own_head =
      is_query ? head : (is_value ? head - num_heads - num_kv_heads : head - num_heads);
  const int own_heads = is_query ? num_heads : num_kv_heads;
  const int64_t width = 2 * rotary.half;
  const T* from = static_cast<const T*>(source) + (row * own_heads + own_head) * width + place;
  float x[kCount], y[kCount];
  load<kCount>(x, from);
  load<kCount>(y, from + rotary.half);
  if (!is_value && rotary.cosines != nullptr) turn<kCount>(x, y, rotary, row, place, -1.0f);
  T* to = rows + (row * all_heads + head) * width + place;
  store<kCount>(to, x);
  store<kCount>(to + rotary.half, y);
}

template <class T>
int count_for(const RotaryRows& rotary, bool packable) {
  return packable && rotary.half % kPack<T> == 0 ? kPack<T> : 1;
}

}  // namespace

void rotate_rows(void* rows, KernelDtype dtype, int64_t num_rows, int64_t row_stride,
                 int64_t num_turned, const RotaryRows& rotary, float sign,
                 tensor::DeviceStream stream) {
  with_element(dtype, [&]<class T>(T*) {
    const int count = count_for<T>(rotary, is_packable<T>(rows, row_stride));
    const int64_t items = num_rows * num_turned * (rotary.half / count);
    if (items == 0) return;
    const auto blocks = static_cast<unsigned>(blocks_for(items, kThreads));
    const auto kernel = count > 1 ? turn_rows<T, kPack<T>> : turn_rows<T, 1>;
    kernel<<<blocks, kThreads, 0, stream>>>(static_cast<T*>(rows), items, row_stride,
                                            static_cast<int>(num_turned), rotary, sign);
  });
}

void pack_and_turn_back(void* rows, KernelDtype dtype, int64_t num_rows, const HeadSources& sources,
                        const RotaryRows& rotary, tensor::DeviceStream stream) {
  with_element(dtype, [&]<class T>(T*) {
    const bool packable = is_packable<T>(rows, 0) && is_packable<T>(sources.query, 0) &&
                          is_packable<T>(sources.key, 0) && is_packable<T>(sources.value, 0);
    const int count = count_for<T>(rotary, packable);
    const int64_t heads = sources.num_heads + 2 * sources.num_kv_heads;
    const int64_t items = num_rows * heads * (rotary.half / count);
    if (items == 0) return;
    const auto blocks = static_cast<unsigned>(blocks_for(items, kThreads));
    const auto kernel = count > 1 ? pack_rows<T, kPack<T>> : pack_rows<T, 1>;
    kernel<<<blocks, kThreads, 0, stream>>>(static_cast<T*>(rows), items, sources, rotary);
  });
}

}  // namespace fullshard::ops
