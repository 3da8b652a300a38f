// SPDX-License-Identifier: Apache-2.0
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "fullshard/comm/gpu/device_sum.h"

namespace fullshard::comm {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 1 << 16;

struct Rows {
  const void* begin[kMaxDeviceRows];
  int count;
};

enum class Fold { sum, max, min };

template <class Sum>
__device__ __forceinline__ Sum folded(Fold fold, Sum sum, Sum value) {
  if (fold == Fold::sum) return sum + value;
  const bool wins = fold == Fold::max ? value > sum : value < sum;
  return wins || value != value ? value : sum;
}

template <class Output, class Sum, class Row>
__global__ void __launch_bounds__(kThreads)
    sum_rows(Output* output, Rows rows, int64_t numel, Fold fold, Sum scale, const Sum* start,
             const Output* addend) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < numel;
       i += step) {
    Sum sum = start ? start[i] : static_cast<Sum>(static_cast<const Row*>(rows.begin[0])[i]);
    for (int row = start ? 0 : 1; row < rows.count; ++row) {
      sum = folded(fold, sum, static_cast<Sum>(static_cast<const Row*>(rows.begin[row])[i]));
    }
    sum = sum * scale;
    output[i] = static_cast<Output>(addend ? static_cast<Sum>(addend[i]) + sum : sum);
  }
}

Fold fold_of(ReduceOp op) {
  if (op == ReduceOp::max) return Fold::max;
  return op == ReduceOp::min ? Fold::min : Fold::sum;
}

template <class Output, class Sum, class Row>
bool launch(const RowSum& sum, cudaStream_t stream) {
  Rows rows{.begin = {}, .count = static_cast<int>(sum.rows.size())};
  std::copy(sum.rows.begin(), sum.rows.end(), rows.begin);
  Sum scale{1};
  if constexpr (!std::is_integral_v<Sum>) scale = Sum(1.0 / static_cast<double>(sum.divisor));
  const int64_t blocks = std::min((sum.numel + kThreads - 1) / kThreads, kMaxBlocks);
  sum_rows<Output, Sum, Row><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<Output*>(sum.output), rows, sum.numel, fold_of(sum.op), scale,
      static_cast<const Sum*>(sum.start), static_cast<const Output*>(sum.addend));
  return true;
}

template <class Sum, class Row>
bool launch_to(const RowSum& sum, cudaStream_t stream) {
  switch (sum.output_dtype) {
    case c10::ScalarType::Float:
      return launch<float, Sum, Row>(sum, stream);
    case c10::ScalarType::BFloat16:
      return launch<c10::BFloat16, Sum, Row>(sum, stream);
    case c10::ScalarType::Half:
      return launch<c10::Half, Sum, Row>(sum, stream);
    case c10::ScalarType::Double:
      return launch<double, Sum, Row>(sum, stream);
    default:
      return false;
  }
}

}  // namespace

bool device_sum(const RowSum& sum, tensor::DeviceStream stream) {
  if (sum.numel == 0) return true;
  switch (sum.rows_dtype) {
    case c10::ScalarType::Float:
      return launch_to<float, float>(sum, stream);
    case c10::ScalarType::BFloat16:
      return launch_to<float, c10::BFloat16>(sum, stream);
    case c10::ScalarType::Half:
      return launch_to<float, c10::Half>(sum, stream);
    case c10::ScalarType::Double:
      return launch_to<double, double>(sum, stream);
    case c10::ScalarType::Long:
      return launch<int64_t, int64_t, int64_t>(sum, stream);
    default:
      return false;
  }
}

}  // namespace fullshard::comm
