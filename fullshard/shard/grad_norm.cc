#include "fullshard/shard/grad_norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "fullshard/shard/engine.h"

namespace fullshard {
namespace {

using OfPiece = double (*)(const ParamGroup& group, size_t index);

double squares(const ParamGroup& group, size_t index) {
  return group.gradients().squares_of_piece(index);
}

double largest(const ParamGroup& group, size_t index) {
  const auto gradient = group.gradients().of_piece(group.pieces()[index]);
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
      for (size_t i = 0; i < group->pieces().size(); ++i) {
        own.data_ptr<double>()[first + group->pieces()[i].slot] = of_piece(*group, i);
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

double largest_of_ranks(const Engine& engine, double norm) {
  if (engine.reduces_over_ranks()) return norm;
  auto value = at::full({1}, norm, at::kDouble);
  engine.mesh().everyone().all_reduce(value, ReduceOp::max, "the gradient norm").wait();
  return value.item<double>();
}

}  // namespace

double two_norm(const Engine& engine) {
  const double total = over_all(partials(engine, squares), std::plus<>());
  return largest_of_ranks(engine, static_cast<float>(std::sqrt(total)));
}

std::string first_non_finite_parameter(const Engine& engine) {
  const auto all = partials(engine, squares);
  const auto values = all.accessor<double, 2>();
  int64_t tensor = 0;
  for (const auto* group : engine.trainable_groups()) {
    for (const auto& slot : group->layout().slots()) {
      for (int64_t shard = 0; shard < values.size(0); ++shard) {
        if (!std::isfinite(values[shard][tensor])) return slot.name;
      }
      ++tensor;
    }
  }
  return {};
}

double infinity_norm(const Engine& engine) {
  const double norm = over_all(partials(engine, largest),
                               [](double a, double b) { return std::isnan(b) || b > a ? b : a; });
  return largest_of_ranks(engine, norm);
}

}  // namespace fullshard
