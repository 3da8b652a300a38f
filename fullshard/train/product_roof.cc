#include "fullshard/train/product_roof.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <chrono>

#include "fullshard/memory/device_memory.h"

namespace fullshard {

double measure_product_roof(at::ScalarType dtype, at::Device device) {
  const int64_t size = device.is_cpu() ? 768 : 8192;
  const at::NoGradGuard no_grad;
  // Random numbers: products of constants draw less power, and a GPU's clock knows.
  const auto left = at::randn({size, size}, at::TensorOptions().device(device)).to(dtype);
  auto result = at::mm(left, left);  // warms up threads and caches
  double best = 0;
  for (int repetition = 0; repetition < 4; ++repetition) {
    synchronise(device);
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(result, left, left);
    synchronise(device);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const auto edge = static_cast<double>(size);
    best = std::max(best, 2.0 * edge * edge * edge / time.count());
  }
  return best;
}

}  // namespace fullshard
