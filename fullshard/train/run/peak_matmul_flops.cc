// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/peak_matmul_flops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "fullshard/memory/device_memory.h"

namespace fullshard::train {
namespace {

constexpr int64_t kSmallestEdge = 96, kLargestEdge = 768;  // on a CPU
constexpr int64_t kEdgeOnGpus = 8192;
constexpr int kRepetitions = 4;
// A processor without instructions for 16-bit products needs seconds for what another does in
// milliseconds: products that would take longer than this are not tried, nor repeated for longer.
constexpr double kLongSeconds = 0.05;

// Which operand is a transposed view, as training has them: the weight in forward, none in the
// gradient of a layer's input, the gradient of its output in that of the weight.
enum class Turned { right, neither, left };

double operations(int64_t edge) {
  const auto size = static_cast<double>(edge);
  return 2.0 * size * size * size;
}

class Product {
 public:
  // Random numbers: products of constants draw less power, and a GPU's clock knows.
  Product(int64_t edge, at::ScalarType dtype, at::Device device, Turned turned)
      : values_(at::randn({edge, edge}, at::TensorOptions().device(device)).to(dtype)),
        left_(turned == Turned::left ? values_.t() : values_),
        right_(turned == Turned::right ? values_.t() : values_),
        result_(at::empty_like(values_)) {}

  // Of the fastest; the first warms up threads and caches.
  double best_seconds() {
    seconds();
    double best = std::numeric_limits<double>::infinity(), spent = 0;
    for (int i = 0; i < kRepetitions && spent < kLongSeconds; ++i) {
      const double taken = seconds();
      best = std::min(best, taken);
      spent += taken;
    }
    return best;
  }

 private:
  double seconds() {
    memory::synchronise(values_.device());
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(result_, left_, right_);
    memory::synchronise(values_.device());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  at::Tensor values_, left_, right_, result_;
};

// The best of all sizes that are quickly done.
double peak_on_cpu(at::ScalarType dtype, Turned turned) {
  constexpr double kGrowth = 8;  // of the operations, with twice the edge
  double peak = 0;
  for (int64_t edge = kSmallestEdge; edge <= kLargestEdge; edge *= 2) {
    const double seconds = Product(edge, dtype, at::kCPU, turned).best_seconds();
    peak = std::max(peak, operations(edge) / seconds);
    if (kGrowth * seconds > kLongSeconds) break;
  }
  return peak;
}

}  // namespace

double measure_peak_matmul_flops(at::ScalarType dtype, at::Device device) {
  const at::NoGradGuard no_grad;
  if (!device.is_cpu()) {
    return operations(kEdgeOnGpus) /
           Product(kEdgeOnGpus, dtype, device, Turned::neither).best_seconds();
  }
  double peak = 0;
  for (const Turned turned : {Turned::right, Turned::neither, Turned::left}) {
    peak = std::max(peak, peak_on_cpu(dtype, turned));
  }
  return peak;
}

}  // namespace fullshard::train
