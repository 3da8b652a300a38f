// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/cuda/device_rows.cuh"
#include "fullshard/ops/cuda/norm_rows.h"

namespace fullshard::ops {
namespace {

// With n the normalised row and h = weight * gradient, the gradient of the input is
// inverse * (h - mean(h) - n * mean(h * n)); RMS norm has no mean(h). The gradients of weight and
// bias are the sums over rows of gradient * n and of gradient: every block adds its rows in its
// threads' registers and leaves one row of partial sums. How many blocks there are depends on the
// shape only, and so do the bits.
constexpr int kNarrowThreads = kNarrowNormThreads;
constexpr int kNarrowRows = kNarrowNormRows;

template <class T, int kThreads, int kPacks, bool kCentred>
struct ColumnTotals {
  static constexpr int kCount = kPack<T>;
  float weight[kPacks][kCount] = {};
  float bias[kCentred ? kPacks : 1][kCount] = {};
};

// Warps of a block have added different rows of the same columns. Each leaves what it has, four
// numbers at a time; then the block adds them in the order of the warps.
template <int kCount, int kPacks>
__device__ __forceinline__ void leave_totals(float* partials, const float (&totals)[kPacks][kCount],
                                             int lane, int num_packs) {
  constexpr int kQuads = kCount / 4, kSlots = kPacks * kQuads * kWarp;
  __shared__ float4 left[kNarrowRows][kSlots];
  float4* own = left[threadIdx.x / kWarp];
#pragma unroll
  for (int p = 0; p < kPacks; ++p) {
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) {
      const float* from = totals[p] + quad * 4;
      own[(p * kQuads + quad) * kWarp + lane] = {from[0], from[1], from[2], from[3]};
    }
  }
  __syncthreads();
  float* to = partials + static_cast<int64_t>(blockIdx.x) * num_packs * kCount;
  for (int slot = threadIdx.x; slot < kSlots; slot += kNarrowThreads) {
    const int quad = slot / kWarp % kQuads;
    const int pack = slot / (kQuads * kWarp) * kWarp + slot % kWarp;
    if (pack >= num_packs) continue;
    float4 sum = left[0][slot];
#pragma unroll
    for (int warp = 1; warp < kNarrowRows; ++warp) {
      const float4 next = left[warp][slot];
      sum = {sum.x + next.x, sum.y + next.y, sum.z + next.z, sum.w + next.w};
    }
    *reinterpret_cast<float4*>(to + pack * kCount + quad * 4) = sum;
  }
  __syncthreads();  // the next totals take the place of these
}

// So many blocks are to be on a multiprocessor at once, that some add while others wait for memory.
// Rows stay in registers as they are stored, which leaves room for them.
template <int kThreads, int kPacks>
inline constexpr int kBlocksAtOnce = kThreads == kWarp ? 2
                                     : kPacks == 1     ? 4
                                                       : 1;

template <class T, int kThreads, int kPacks, bool kCentred>
__global__ void __launch_bounds__(kThreads == kWarp ? kNarrowThreads : kThreads,
                                  (kBlocksAtOnce<kThreads, kPacks>))
    backward_rows(NormGradientRows gradients, NormRows rows) {
  constexpr int kCount = kPack<T>;
  constexpr int kRows = kThreads == kWarp ? kNarrowRows : 1;
  const int lane = threadIdx.x % kThreads;
  const int num_packs = static_cast<int>(rows.width) / kCount;
  const float width = static_cast<float>(rows.width);
  const T* weights = static_cast<const T*>(rows.weight);
  ColumnTotals<T, kThreads, kPacks, kCentred> totals;
  LargestStored stored;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kRows;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kThreads;
       row < rows.num_rows; row += step) {
    const int64_t begin = row * rows.width;
    const float mean = kCentred ? rows.mean[row] : 0, inverse = rows.inverse[row];
    uint4 inputs[kPacks], to_outputs[kPacks];
    uint4 added[kPacks] = {};
    float along = 0, level = 0;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kThreads + lane;
      if (pack >= num_packs) continue;
      inputs[p] = load_raw(static_cast<const T*>(rows.input) + begin + pack * kCount);
      to_outputs[p] =
          load_raw(static_cast<const T*>(gradients.output_gradient) + begin + pack * kCount);
      if (gradients.added != nullptr) {
        added[p] = load_raw(static_cast<const T*>(gradients.added) + begin + pack * kCount);
      }
    }
    float x[kCount], gradient[kCount], weight[kCount];
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kThreads + lane;
      if (pack >= num_packs) continue;
      widen<kCount, T>(x, inputs[p]);
      widen<kCount, T>(gradient, to_outputs[p]);
      load<kCount>(weight, weights + pack * kCount);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float n = (x[i] - mean) * inverse, h = gradient[i] * weight[i];
        totals.weight[p][i] += gradient[i] * (kCentred ? n : widened(narrowed<T>(n)));
        if constexpr (kCentred) totals.bias[p][i] += gradient[i];
        along += h * n;
        if constexpr (kCentred) level += h;
      }
    }
    along = row_sum<kThreads>(along) / width;
    if constexpr (kCentred) level = row_sum<kThreads>(level) / width;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kThreads + lane;
      if (pack >= num_packs) continue;
      float result[kCount];
      widen<kCount, T>(x, inputs[p]);
      widen<kCount, T>(gradient, to_outputs[p]);
      load<kCount>(weight, weights + pack * kCount);
      widen<kCount, T>(result, added[p]);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const float n = (x[i] - mean) * inverse;
        result[i] += inverse * (gradient[i] * weight[i] - level - n * along);
      }
      store<kCount>(static_cast<T*>(gradients.input_gradient) + begin + pack * kCount, result);
      stored.see(result);
    }
  }
  if (gradients.largest != nullptr) stored.leave<T>(gradients.largest, blockIdx.x);
  if constexpr (kThreads == kWarp) {
    if (gradients.weight_partials != nullptr) {
      leave_totals<kCount>(gradients.weight_partials, totals.weight, lane, num_packs);
    }
    if constexpr (kCentred) {
      if (gradients.bias_partials != nullptr) {
        leave_totals<kCount>(gradients.bias_partials, totals.bias, lane, num_packs);
      }
    }
  } else {
    const int64_t first = static_cast<int64_t>(blockIdx.x) * rows.width;
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int pack = p * kThreads + lane;
      if (pack >= num_packs) continue;
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int64_t place = first + pack * kCount + i;
        if (gradients.weight_partials != nullptr) {
          gradients.weight_partials[place] = totals.weight[p][i];
        }
        if constexpr (kCentred) {
          if (gradients.bias_partials != nullptr) {
            gradients.bias_partials[place] = totals.bias[p][i];
          }
        }
      }
    }
  }
}

// Any width: a thread owns every 256th column, in memory too.
template <class T, bool kCentred>
__global__ void __launch_bounds__(kNarrowThreads)
    backward_any_rows(NormGradientRows gradients, NormRows rows) {
  const float width = static_cast<float>(rows.width);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * rows.width;
  const T* weights = static_cast<const T*>(rows.weight);
  LargestStored stored;
  for (int64_t i = threadIdx.x; i < rows.width; i += kNarrowThreads) {
    if (gradients.weight_partials != nullptr) gradients.weight_partials[first + i] = 0;
    if (gradients.bias_partials != nullptr) gradients.bias_partials[first + i] = 0;
  }
  for (int64_t row = blockIdx.x; row < rows.num_rows; row += gridDim.x) {
    const T* x = static_cast<const T*>(rows.input) + row * rows.width;
    const T* g = static_cast<const T*>(gradients.output_gradient) + row * rows.width;
    const float mean = kCentred ? rows.mean[row] : 0, inverse = rows.inverse[row];
    float along = 0, level = 0;
    for (int64_t i = threadIdx.x; i < rows.width; i += kNarrowThreads) {
      const float h = widened(g[i]) * widened(weights[i]);
      along += h * (widened(x[i]) - mean) * inverse;
      level += h;
    }
    along = row_sum<kNarrowThreads>(along) / width;
    level = kCentred ? row_sum<kNarrowThreads>(level) / width : 0;
    for (int64_t i = threadIdx.x; i < rows.width; i += kNarrowThreads) {
      const float gradient = widened(g[i]);
      const float n = (widened(x[i]) - mean) * inverse;
      float result = inverse * (gradient * widened(weights[i]) - level - n * along);
      if (gradients.added != nullptr) {
        result += widened(static_cast<const T*>(gradients.added)[row * rows.width + i]);
      }
      static_cast<T*>(gradients.input_gradient)[row * rows.width + i] = narrowed<T>(result);
      stored.see({result});
      if (gradients.weight_partials != nullptr) {
        gradients.weight_partials[first + i] += gradient * (kCentred ? n : widened(narrowed<T>(n)));
      }
      if (gradients.bias_partials != nullptr) gradients.bias_partials[first + i] += gradient;
    }
  }
  if (gradients.largest != nullptr) stored.leave<T>(gradients.largest, blockIdx.x);
}

template <class T>
bool are_packable(const NormGradientRows& gradients, const NormRows& rows) {
  return is_packable<T>(rows.input, 0) && is_packable<T>(rows.weight, 0) &&
         is_packable<T>(gradients.input_gradient, 0) &&
         is_packable<T>(gradients.output_gradient, 0) && is_packable<T>(gradients.added, 0);
}

template <class T, bool kCentred>
void launch_backward(const NormGradientRows& gradients, const NormRows& rows, cudaStream_t stream) {
  using Form = NormGradientForm;
  const Form form = norm_gradient_form(rows.dtype, rows.width);
  const auto blocks =
      static_cast<unsigned>(num_norm_partials(rows.dtype, rows.num_rows, rows.width));
  const int64_t num_packs = rows.width / kPack<T>;
  if (form == Form::any || !are_packable<T>(gradients, rows)) {
    backward_any_rows<T, kCentred><<<blocks, kNarrowThreads, 0, stream>>>(gradients, rows);
  } else if (form == Form::narrow) {
    const auto kernel = num_packs <= kWarp * 3 ? backward_rows<T, kWarp, 3, kCentred>
                                               : backward_rows<T, kWarp, 4, kCentred>;
    kernel<<<blocks, kNarrowThreads, 0, stream>>>(gradients, rows);
  } else if (form == Form::wide && num_packs <= 256) {
    backward_rows<T, 256, 1, kCentred><<<blocks, 256, 0, stream>>>(gradients, rows);
  } else if (form == Form::wide) {
    backward_rows<T, 256, 4, kCentred><<<blocks, 256, 0, stream>>>(gradients, rows);
  } else {
    backward_rows<T, 1024, 2, kCentred><<<blocks, 1024, 0, stream>>>(gradients, rows);
  }
}

}  // namespace

void norm_gradient_rows(const NormGradientRows& gradients, const NormRows& rows,
                        tensor::DeviceStream stream) {
  if (rows.width == 0) return;
  clear_largest(gradients.largest, stream);
  with_element(rows.dtype, [&]<class T>(T*) {
    if (rows.centred) {
      launch_backward<T, true>(gradients, rows, stream);
    } else {
      launch_backward<T, false>(gradients, rows, stream);
    }
  });
}

}  // namespace fullshard::ops
