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

struct Edges {
  int64_t smallest, largest;
};
constexpr Edges kOnCpus{96, 768}, kOnGpus{1024, 8192};
// A processor without instructions for 16-bit products needs seconds for what another does in
// milliseconds: products that would take longer than this are not tried, nor repeated for longer.
constexpr double kLongSeconds = 0.05;
// A GPU that was idle comes to its clock only while it computes, some hundredths of a second long:
// the first products take several times as long as the later ones.
constexpr double kRisingSeconds = 0.2;

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
  double best_seconds(double least_spent = 0) {
    seconds();
    return best_of_repetitions([this] { return seconds(); }, least_spent);
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
double peak_of_sizes(const Edges& edges, at::ScalarType dtype, at::Device device, Turned turned) {
  constexpr double kGrowth = 8;  // of the operations, with twice the edge
  double peak = 0;
  for (int64_t edge = edges.smallest; edge <= edges.largest; edge *= 2) {
    Product product(edge, dtype, device, turned);
    double seconds = product.best_seconds();
    const bool is_last = 2 * edge > edges.largest || kGrowth * seconds > kLongSeconds;
    if (is_last && !device.is_cpu()) seconds = product.best_seconds(kRisingSeconds);
    peak = std::max(peak, operations(edge) / seconds);
    if (is_last) break;
  }
  return peak;
}

}  // namespace

double best_of_repetitions(const std::function<double()>& seconds, double least_spent) {
  constexpr int kRepetitions = 4;
  double best = std::numeric_limits<double>::infinity(), spent = 0;
  for (int i = 0; spent < least_spent || (i < kRepetitions && spent < kLongSeconds); ++i) {
    const double taken = seconds();
    best = std::min(best, taken);
    spent += taken;
  }
  return best;
}

double measure_peak_matmul_flops(at::ScalarType dtype, at::Device device) {
  const at::NoGradGuard no_grad;
  if (!device.is_cpu()) return peak_of_sizes(kOnGpus, dtype, device, Turned::neither);
  double peak = 0;
  for (const Turned turned : {Turned::right, Turned::neither, Turned::left}) {
    peak = std::max(peak, peak_of_sizes(kOnCpus, dtype, device, turned));
  }
  return peak;
}

}  // namespace fullshard::train
