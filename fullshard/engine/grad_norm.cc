// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/grad_norm.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine.h"
#include "fullshard/engine/gradients/device_norm.h"
#include "fullshard/engine/gradients/norm_riders.h"

namespace fullshard::engine {
namespace {

double number_of(NormKind kind, const ParamGroup& group, size_t index) {
  if (kind == NormKind::sum_of_squares) return group.gradients().squares_of_piece(index);
  const auto gradient = group.gradients().of_piece(group.pieces()[index]);
  return gradient.numel() == 0 ? 0.0 : gradient.abs().max().item<double>();
}

int64_t num_tensors_of(const std::vector<ParamGroup*>& groups) {
  int64_t num_tensors = 0;
  for (const auto* group : groups) {
    num_tensors += static_cast<int64_t>(group->layout().slots().size());
  }
  return num_tensors;
}

// Calls `use` with the group, the piece's index in it and the tensor's place in the model, for
// every piece of this rank that has a gradient.
template <class Use>
void for_each_piece(const std::vector<ParamGroup*>& groups, const Use& use) {
  int64_t first = 0;
  for (const auto* group : groups) {
    if (group->gradients().is_reduced()) {
      for (size_t i = 0; i < group->pieces().size(); ++i) {
        use(*group, i, first + group->pieces()[i].slot);
      }
    }
    first += static_cast<int64_t>(group->layout().slots().size());
  }
}

at::Tensor own_numbers(const std::vector<ParamGroup*>& groups, NormKind kind) {
  auto own = at::zeros({num_tensors_of(groups)}, at::kDouble);
  for_each_piece(groups, [&](const ParamGroup& group, size_t index, int64_t tensor) {
    own.data_ptr<double>()[tensor] = number_of(kind, group, index);
  });
  return own;
}

// A few launches for all pieces; the numbers stay on the device. Those of gradients that have left
// it were taken before.
at::Tensor own_numbers_on_device(const std::vector<ParamGroup*>& groups, NormKind kind) {
  const auto is_known = [kind](const ParamGroup& group) {
    const auto* away = group.gradients().away();
    return away != nullptr && away->is_away() && away->norms(kind).defined();
  };
  for (auto* group : groups) {
    if (!is_known(*group)) group->gradients().come_back();
  }
  std::vector<GradientPiece> pieces;
  for_each_piece(groups, [&](const ParamGroup& group, size_t index, int64_t tensor) {
    if (is_known(group)) return;
    pieces.push_back({group.gradients().of_piece(group.pieces()[index]), tensor});
  });
  auto own = norms_on_device(kind, pieces, num_tensors_of(groups), groups.front()->device());
  int64_t first = 0;
  for (const auto* group : groups) {
    const auto num_slots = static_cast<int64_t>(group->layout().slots().size());
    if (group->gradients().is_reduced() && is_known(*group)) {
      own.narrow(0, first, num_slots).copy_(group->gradients().away()->norms(kind));
    }
    first += num_slots;
  }
  return own;
}

// One number per tensor of the model and shard, [shards][tensors], in the memory where the
// gradients are.
at::Tensor partials(const Engine& engine, NormKind kind) {
  const auto groups = engine.trainable_groups();
  const bool is_on_device = !groups.empty() && groups.front()->device().is_cuda();
  const auto own = is_on_device ? own_numbers_on_device(groups, kind) : own_numbers(groups, kind);
  auto shards = engine.mesh().shards();
  // A copy on the device would only cost a launch.
  if (is_on_device && shards.size() == 1) return own.view({1, -1});
  auto all = at::zeros({shards.size() * own.numel()}, own.options());
  if (own.numel() > 0) shards.all_gather(all, own, "the gradient norm").wait();
  return all.view({shards.size(), own.numel()});
}

// The same with the riders behind this rank's numbers, in one message between all ranks.
at::Tensor partials_with(const Engine& engine, NormKind kind, NormRiders& riders) {
  const auto groups = engine.trainable_groups();
  const int64_t tensors = num_tensors_of(groups);
  const auto num_riders = static_cast<int64_t>(riders.own().size());
  const auto own = at::zeros({tensors + num_riders}, at::kDouble);
  own.narrow(0, 0, tensors).copy_(own_numbers(groups, kind));
  std::copy(riders.own().begin(), riders.own().end(), own.mutable_data_ptr<double>() + tensors);
  const auto& shards = engine.mesh().shards();
  const auto all = at::zeros({shards.size(), own.numel()}, own.options());
  shards.all_gather(all, own, "the gradient norm").wait();
  riders.arrive(all.narrow(1, tensors, num_riders).contiguous());
  return all.narrow(1, 0, tensors);
}

// Where the shards axis holds everyone it is in the order of ranks.
bool can_carry_riders(const Engine& engine) {
  return engine.mesh().num_replicas() == 1 && engine.mesh().world().device().is_cpu();
}

// For the host: where gradients are on a device this is the one wait of a step.
at::Tensor partials_on_host(const Engine& engine, NormKind kind, NormRiders* riders = nullptr) {
  if (riders != nullptr && !riders->own().empty() && can_carry_riders(engine)) {
    return partials_with(engine, kind, *riders);
  }
  return partials(engine, kind).cpu();
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

double two_norm(const Engine& engine, NormRiders* riders) {
  const double total =
      over_all(partials_on_host(engine, NormKind::sum_of_squares, riders), std::plus<>());
  return largest_of_ranks(engine, static_cast<float>(std::sqrt(total)));
}

std::string first_non_finite_parameter(const Engine& engine) {
  const auto all = partials_on_host(engine, NormKind::sum_of_squares);
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

double infinity_norm(const Engine& engine, NormRiders* riders) {
  const double norm = over_all(partials_on_host(engine, NormKind::largest, riders),
                               [](double a, double b) { return std::isnan(b) || b > a ? b : a; });
  return largest_of_ranks(engine, norm);
}

at::Tensor clip_factor(const Engine& engine, NormKind kind, double max_norm, double loss_scale) {
  check(engine.reduces_over_ranks() || engine.mesh().world().size() == 1,
        "the clip factor cannot stay on the device while ranks keep their own gradients; use "
        "clip_grad_norm");
  const auto all = partials(engine, kind);
  check(all.is_cuda(), "the clip factor is kept on a device, but the gradients are on {}",
        all.device().str());
  return clip_factor_on_device(kind, all.view({-1}), {static_cast<float>(max_norm), loss_scale});
}

}  // namespace fullshard::engine
