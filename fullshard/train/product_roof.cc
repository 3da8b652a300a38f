#include "fullshard/train/product_roof.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <chrono>

namespace fullshard {

double measure_product_roof(at::ScalarType dtype) {
  constexpr int64_t kSize = 768;
  const at::NoGradGuard no_grad;
  const auto left = at::ones({kSize, kSize}, dtype);
  const auto right = at::ones({kSize, kSize}, dtype);
  auto result = at::mm(left, right);  // warms up threads and caches
  double best = 0;
  for (int repetition = 0; repetition < 4; ++repetition) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(result, left, right);
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2.0 * kSize * kSize * kSize / time.count());
  }
  return best;
}

}  // namespace fullshard
