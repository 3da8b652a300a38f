#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "fullshard/comm/device_sum.h"

namespace fullshard {
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
    sum_rows(Output* output, Rows rows, int64_t numel, Fold fold, Sum scale, const Output* addend) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < numel;
       i += step) {
    Sum sum = static_cast<Sum>(static_cast<const Row*>(rows.begin[0])[i]);
    for (int row = 1; row < rows.count; ++row) {
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
bool launch(void* output, const Rows& rows, int64_t numel, const DeviceSum& options,
            cudaStream_t stream) {
  Sum scale{1};
  if constexpr (!std::is_integral_v<Sum>) {
    if (options.op == ReduceOp::average) scale = Sum(1.0 / static_cast<double>(rows.count));
  }
  const int64_t blocks = std::min((numel + kThreads - 1) / kThreads, kMaxBlocks);
  sum_rows<Output, Sum, Row><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(
      static_cast<Output*>(output), rows, numel, fold_of(options.op), scale,
      static_cast<const Output*>(options.addend));
  return true;
}

template <class Sum, class Row>
bool launch_to(void* output, c10::ScalarType output_dtype, const Rows& rows, int64_t numel,
               const DeviceSum& options, cudaStream_t stream) {
  switch (output_dtype) {
    case c10::ScalarType::Float:
      return launch<float, Sum, Row>(output, rows, numel, options, stream);
    case c10::ScalarType::BFloat16:
      return launch<c10::BFloat16, Sum, Row>(output, rows, numel, options, stream);
    case c10::ScalarType::Half:
      return launch<c10::Half, Sum, Row>(output, rows, numel, options, stream);
    case c10::ScalarType::Double:
      return launch<double, Sum, Row>(output, rows, numel, options, stream);
    default:
      return false;
  }
}

}  // namespace

bool device_sum(void* output, c10::ScalarType output_dtype, std::span<const void* const> rows,
                c10::ScalarType rows_dtype, int64_t numel, const DeviceSum& options, void* stream) {
  if (numel == 0) return true;
  Rows list{.begin = {}, .count = static_cast<int>(rows.size())};
  std::copy(rows.begin(), rows.end(), list.begin);
  const auto at = static_cast<cudaStream_t>(stream);
  switch (rows_dtype) {
    case c10::ScalarType::Float:
      return launch_to<float, float>(output, output_dtype, list, numel, options, at);
    case c10::ScalarType::BFloat16:
      return launch_to<float, c10::BFloat16>(output, output_dtype, list, numel, options, at);
    case c10::ScalarType::Half:
      return launch_to<float, c10::Half>(output, output_dtype, list, numel, options, at);
    case c10::ScalarType::Double:
      return launch_to<double, double>(output, output_dtype, list, numel, options, at);
    case c10::ScalarType::Long:
      return launch<int64_t, int64_t, int64_t>(output, list, numel, options, at);
    default:
      return false;
  }
}

}  // namespace fullshard
