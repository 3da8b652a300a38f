#include "fullshard/shard/grad_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "fullshard/shard/engine.h"
#include "fullshard/shard/grad_norm_kernels.h"

namespace fullshard {
namespace {

using OfPiece = double (*)(const at::Tensor& gradient);

double squares(const at::Tensor& gradient) {
  if (gradient.scalar_type() == at::kFloat) {
    return sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
  }
  const auto wide = gradient.to(at::kDouble);
  return wide.dot(wide).item<double>();
}

double largest(const at::Tensor& gradient) {
  return gradient.numel() == 0 ? 0.0 : gradient.abs().max().item<double>();
}

// One number per tensor of the model and shard, [shards][tensors].
at::Tensor partials(const Engine& engine, OfPiece of_piece) {
  const auto groups = engine.trainable_groups();
  int64_t num_tensors = 0;
  for (const auto* group : groups)
    num_tensors += static_cast<int64_t>(group->layout().slots().size());
  auto own = at::zeros({num_tensors}, at::kDouble);
  int64_t first = 0;
  for (const auto* group : groups) {
    if (group->gradients().is_reduced()) {
      for (const auto& piece : group->pieces()) {
        own.data_ptr<double>()[first + piece.slot] = of_piece(group->gradients().of_piece(piece));
      }
    }
    first += static_cast<int64_t>(group->layout().slots().size());
  }
  auto shards = engine.mesh().shards();
  auto all = at::zeros({shards.size() * num_tensors}, at::kDouble);
  if (num_tensors > 0) shards.all_gather(all, own, "the gradient norm").wait();
  return all.view({shards.size(), num_tensors});
}

template <class Combine>
double over_all(const at::Tensor& partials, const Combine& combine) {
  double total = 0;
  const auto values = partials.accessor<double, 2>();
  for (int64_t tensor = 0; tensor < values.size(1); ++tensor) {
    for (int64_t shard = 0; shard < values.size(0); ++shard) {
      total = combine(total, values[shard][tensor]);
    }
  }
  return total;
}

}  // namespace

double two_norm(const Engine& engine) {
  const double total = over_all(partials(engine, squares), std::plus<>());
  return static_cast<float>(std::sqrt(total));
}

double infinity_norm(const Engine& engine) {
  return over_all(partials(engine, largest),
                  [](double a, double b) { return std::isnan(b) || b > a ? b : a; });
}

}  // namespace fullshard
