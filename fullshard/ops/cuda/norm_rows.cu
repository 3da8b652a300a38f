// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/norm_rows.h"

namespace fullshard::ops {
namespace {

// A row lies in the registers of its threads: kPacks accesses of 16 bytes each. Rows that do not
// (odd widths, very wide ones) are read again for every use, element by element.
constexpr int kNarrowBlock = 128;  // warps of their own, a row each

template <class T, int kThreads, int kPacks>
struct RowInRegisters {
  static constexpr int kCount = kPack<T>;
  float values[kPacks][kCount];

  __device__ __forceinline__ void read(const T* row, int lane, int num_packs) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kThreads + lane;
      if (pack < num_packs) load<kCount>(values[p], row + pack * kCount);
    }
  }

  // term(p, i, value), summed over the row.
  template <class Term>
  __device__ __forceinline__ float sum(int lane, int num_packs, const Term& term) const {
    float total = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      if (p * kThreads + lane < num_packs) {
#pragma unroll
        for (int i = 0; i < kCount; ++i) total += term(values[p][i]);
      }
    }
    return row_sum<kThreads>(total);
  }
};

template <class T>
__device__ __forceinline__ float normalised_value(float value, float mean, float inverse,
                                                  bool centred) {
  const float normalised = (value - mean) * inverse;
  return centred ? normalised : widened(narrowed<T>(normalised));
}

template <class T, int kThreads, int kPacks, bool kCentred, bool kKnown>
__global__ void __launch_bounds__(kThreads == kWarp ? kNarrowBlock : kThreads)
    forward_rows(T* output, NormRows rows, float epsilon, float* largest) {
  constexpr int kCount = kPack<T>;
  constexpr int kRows = kThreads == kWarp ? kNarrowBlock / kWarp : 1;
  const int lane = threadIdx.x % kThreads;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
  if (row >= rows.num_rows) return;
  const int num_packs = static_cast<int>(rows.width) / kCount;
  const float width = static_cast<float>(rows.width);
  RowInRegisters<T, kThreads, kPacks> x;
  x.read(static_cast<const T*>(rows.input) + row * rows.width, lane, num_packs);
  float mean = 0, inverse = 0;
  if constexpr (kKnown) {
    if constexpr (kCentred) mean = rows.mean[row];
    inverse = rows.inverse[row];
  } else {
    if constexpr (kCentred) {
      mean = x.sum(lane, num_packs, [](float value) { return value; }) / width;
    }
    const float squares =
        x.sum(lane, num_packs, [=](float value) { return (value - mean) * (value - mean); });
    inverse = 1.0f / sqrtf(squares / width + epsilon);
    if (lane == 0) {
      if constexpr (kCentred) rows.mean[row] = mean;
      rows.inverse[row] = inverse;
    }
  }
  const T* weights = static_cast<const T*>(rows.weight);
  const T* biases = static_cast<const T*>(rows.bias);
  T* to = output + row * rows.width;
  LargestStored stored;
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
    const int pack = p * kThreads + lane;
    if (pack >= num_packs) continue;
    float weight[kCount], bias[kCount] = {}, result[kCount];
    load<kCount>(weight, weights + pack * kCount);
    if (kCentred && biases != nullptr) load<kCount>(bias, biases + pack * kCount);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      result[i] =
          weight[i] * normalised_value<T>(x.values[p][i], mean, inverse, kCentred) + bias[i];
    }
    store<kCount>(to + pack * kCount, result);
    stored.see(result);
  }
  if (largest != nullptr) stored.leave<T>(largest, row);
}

constexpr int kPlainThreads = 256;

template <class T, bool kCentred, bool kKnown>
__global__ void __launch_bounds__(kPlainThreads)
    forward_any_rows(T* output, NormRows rows, float epsilon, float* largest) {
  const int64_t row = blockIdx.x;
  const T* x = static_cast<const T*>(rows.input) + row * rows.width;
  const float width = static_cast<float>(rows.width);
  float mean = 0, inverse = 0;
  if constexpr (kKnown) {
    if constexpr (kCentred) mean = rows.mean[row];
    inverse = rows.inverse[row];
  } else {
    float sum = 0, squares = 0;
    if constexpr (kCentred) {
      for (int64_t i = threadIdx.x; i < rows.width; i += kPlainThreads) sum += widened(x[i]);
      mean = row_sum<kPlainThreads>(sum) / width;
    }
    for (int64_t i = threadIdx.x; i < rows.width; i += kPlainThreads) {
      squares += (widened(x[i]) - mean) * (widened(x[i]) - mean);
    }
    inverse = 1.0f / sqrtf(row_sum<kPlainThreads>(squares) / width + epsilon);
    if (threadIdx.x == 0) {
      if constexpr (kCentred) rows.mean[row] = mean;
      rows.inverse[row] = inverse;
    }
  }
  const T* weights = static_cast<const T*>(rows.weight);
  const T* biases = static_cast<const T*>(rows.bias);
  LargestStored stored;
  for (int64_t i = threadIdx.x; i < rows.width; i += kPlainThreads) {
    const float bias = kCentred && biases != nullptr ? widened(biases[i]) : 0;
    const float normalised = normalised_value<T>(widened(x[i]), mean, inverse, kCentred);
    const float result[1] = {widened(weights[i]) * normalised + bias};
    output[row * rows.width + i] = narrowed<T>(result[0]);
    stored.see(result);
  }
  if (largest != nullptr) stored.leave<T>(largest, row);
}

template <class T>
bool fits_registers(const NormRows& rows, int64_t num_packs) {
  return rows.width % kPack<T> == 0 && rows.width / kPack<T> <= num_packs &&
         is_packable<T>(rows.input, 0) && is_packable<T>(rows.weight, 0) &&
         is_packable<T>(rows.bias, 0);
}

template <class T, bool kCentred, bool kKnown>
void launch_forward(void* output, const NormRows& rows, float epsilon, float* largest,
                    cudaStream_t stream) {
  clear_largest(largest, stream);
  auto* to = static_cast<T*>(output);
  const int64_t num_packs = rows.width / kPack<T>;
  const auto num_rows = static_cast<unsigned>(rows.num_rows);
  const auto narrow_blocks = static_cast<unsigned>(blocks_for(rows.num_rows, kNarrowBlock / kWarp));
  if (!fits_registers<T>(rows, 1024 * 4) || !is_packable<T>(output, 0)) {
    forward_any_rows<T, kCentred, kKnown>
        <<<num_rows, kPlainThreads, 0, stream>>>(to, rows, epsilon, largest);
  } else if (num_packs <= kWarp * 4) {
    forward_rows<T, kWarp, 4, kCentred, kKnown>
        <<<narrow_blocks, kNarrowBlock, 0, stream>>>(to, rows, epsilon, largest);
  } else if (num_packs <= kWarp * 8) {
    forward_rows<T, kWarp, 8, kCentred, kKnown>
        <<<narrow_blocks, kNarrowBlock, 0, stream>>>(to, rows, epsilon, largest);
  } else if (num_packs <= 256 * 4) {
    forward_rows<T, 256, 4, kCentred, kKnown>
        <<<num_rows, 256, 0, stream>>>(to, rows, epsilon, largest);
  } else {
    forward_rows<T, 1024, 4, kCentred, kKnown>
        <<<num_rows, 1024, 0, stream>>>(to, rows, epsilon, largest);
  }
}

template <bool kKnown>
void choose_forward(void* output, const NormRows& rows, float epsilon, float* largest,
                    cudaStream_t stream) {
  if (rows.num_rows == 0 || rows.width == 0) return;
  with_element(rows.dtype, [&]<class T>(T*) {
    if (rows.centred) {
      launch_forward<T, true, kKnown>(output, rows, epsilon, largest, stream);
    } else {
      launch_forward<T, false, kKnown>(output, rows, epsilon, largest, stream);
    }
  });
}

}  // namespace

void normalise_rows(void* output, const NormRows& rows, float epsilon, float* largest,
                    tensor::DeviceStream stream) {
  choose_forward<false>(output, rows, epsilon, largest, stream);
}

void normalise_rows_again(void* output, const NormRows& rows, tensor::DeviceStream stream) {
  choose_forward<true>(output, rows, 0, nullptr, stream);
}

}  // namespace fullshard::ops
