// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/peak_matmul_flops.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>

#include "fullshard/memory/device_memory.h"

namespace fullshard::train {
namespace {

double operations(int64_t edge) {
  const auto size = static_cast<double>(edge);
  return 2.0 * size * size * size;
}

class Product {
 public:
  // Random numbers: products of constants draw less power, and a GPU's clock knows.
  Product(int64_t edge, at::ScalarType dtype, at::Device device)
      : left_(at::randn({edge, edge}, at::TensorOptions().device(device)).to(dtype)),
        result_(at::empty_like(left_)) {}

  double seconds() {
    memory::synchronise(left_.device());
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(result_, left_, left_);
    memory::synchronise(left_.device());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  at::Tensor left_;
  at::Tensor result_;
};

// Large enough to show what the device can do, and no larger than what it does quickly: a processor
// without instructions for 16-bit products needs seconds for what another does in milliseconds.
int64_t edge_for(at::ScalarType dtype, at::Device device) {
  constexpr int64_t kSmallest = 96, kLargest = 768;
  constexpr double kLong = 5e-3;
  if (!device.is_cpu()) return 8192;
  int64_t edge = kSmallest;
  while (edge < kLargest && Product(edge, dtype, device).seconds() < kLong) edge *= 2;
  return edge;
}

}  // namespace

double measure_peak_matmul_flops(at::ScalarType dtype, at::Device device) {
  const at::NoGradGuard no_grad;
  const int64_t edge = edge_for(dtype, device);
  Product product(edge, dtype, device);
  product.seconds();  // warms up threads and caches
  double best = 0;
  for (int repetition = 0; repetition < 4; ++repetition) {
    best = std::max(best, operations(edge) / product.seconds());
  }
  return best;
}

}  // namespace fullshard::train
