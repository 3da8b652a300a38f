// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/torch_states.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/torch/torch_kind.h"

namespace fullshard::optim {
namespace {

// All that happens with a piece: its place in the group's shard, its state in the optimizer.
class TorchStates {
 public:
  TorchStates(const PieceParameters& pieces, const torch::optim::Optimizer& optimizer)
      : pieces_(pieces), kind_(torch_kind_of(optimizer)) {
    for (const auto& group : optimizer.param_groups()) {
      for (const auto& parameter : group.params()) {
        options_[parameter.unsafeGetTensorImpl()] = &group.options();
      }
    }
  }

  OptimizerStates empty(const torch::optim::Optimizer& optimizer) const {
    OptimizerStates states{.name = kind_->name()};
    for (const auto& group : optimizer.param_groups()) {
      states.lrs.push_back(group.options().get_lr());
      for (auto& name : kind_->states(group.options())) add_once(states.names, std::move(name));
    }
    const auto& model = pieces_.model();
    for (int group = 0; group < model.num_groups(); ++group) {
      states.values.emplace_back();
      const auto options = at::TensorOptions().dtype(dtype_of(group)).device(device());
      for (size_t k = 0; k < states.names.size(); ++k) {
        states.values.back().push_back(at::zeros({model.shard_numel(group)}, options));
      }
    }
    return states;
  }

  void copy_out(const torch::optim::Optimizer& optimizer, OptimizerStates& states) const {
    for_each([&](const PieceView& piece, void* key) {
      const auto found = optimizer.state().find(key);
      if (found == optimizer.state().end()) return;
      auto& counts = states.counts[piece.name];
      if (const auto* step = kind_->step(*found->second)) {
        counts["step"] = *step;
        states.num_steps = std::max(states.num_steps, *step);
      }
      const auto tensors = kind_->tensors(*found->second);
      for (size_t k = 0; k < states.names.size(); ++k) {
        const at::Tensor& values = *tensors.at(states.names[k]);
        if (values.defined()) place(states, piece, k).copy_(checked(values, piece));
      }
    });
  }

  void put_in(const OptimizerStates& states, torch::optim::Optimizer& optimizer) const {
    for_each([&](const PieceView& piece, void* key) {
      optimizer.state().erase(key);
      const auto counts = states.counts.find(piece.name);
      if (counts == states.counts.end()) return;
      auto state = kind_->make();
      const auto count = counts->second.find("step");
      if (int64_t* step = kind_->step(*state); step != nullptr && count != counts->second.end()) {
        *step = count->second;
      }
      const auto tensors = kind_->tensors(*state);
      const auto used = kind_->states(*options_.at(key));
      for (size_t k = 0; k < states.names.size(); ++k) {
        const bool is_used = std::ranges::find(used, states.names[k]) != used.end();
        if (is_used) *tensors.at(states.names[k]) = place(states, piece, k);
      }
      optimizer.state()[key] = std::move(state);
    });
  }

 private:
  static void add_once(std::vector<std::string>& names, std::string name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  }

  static at::Tensor place(const OptimizerStates& states, const PieceView& piece, size_t k) {
    return states.values[static_cast<size_t>(piece.group)][k].narrow(0, piece.offset,
                                                                     piece.numel());
  }

  const at::Tensor& checked(const at::Tensor& values, const PieceView& piece) const {
    check(values.numel() == piece.numel() && values.scalar_type() == piece.master.scalar_type(),
          "checkpoint: {} keeps {} values of {} for '{}', of which this rank has {} of {}; states "
          "that are not one value per element cannot be saved by pieces",
          kind_->name(), values.numel(), c10::toString(values.scalar_type()), piece.name,
          piece.numel(), c10::toString(piece.master.scalar_type()));
    return values;
  }

  at::Device device() const { return pieces_.model().mesh().world().device(); }
  at::ScalarType dtype_of(int group) const {
    return engine::EngineAccess::of(pieces_.model())
        .trainable_groups()
        .at(group)
        ->spec()
        .master_dtype;
  }

  // Those that the optimizer was given.
  template <class Use>
  void for_each(const Use& use) const {
    const at::NoGradGuard no_grad;
    const auto views = pieces_.model().pieces();
    for (size_t i = 0; i < views.size(); ++i) {
      void* key = pieces_.tensors()[i].unsafeGetTensorImpl();
      if (options_.contains(key)) use(views[i], key);
    }
  }

  const PieceParameters& pieces_;
  std::unique_ptr<TorchKind> kind_;
  std::map<void*, const torch::optim::OptimizerOptions*> options_;  // by parameter
};

}  // namespace

OptimizerStates states_of(const PieceParameters& pieces, const torch::optim::Optimizer& optimizer) {
  const TorchStates torch_states(pieces, optimizer);
  OptimizerStates states = torch_states.empty(optimizer);
  torch_states.copy_out(optimizer, states);
  return states;
}

OptimizerStates empty_states_of(const PieceParameters& pieces,
                                const torch::optim::Optimizer& optimizer) {
  return TorchStates(pieces, optimizer).empty(optimizer);
}

void restore_states(const PieceParameters& pieces, const OptimizerStates& states,
                    torch::optim::Optimizer& optimizer) {
  TorchStates(pieces, optimizer).put_in(states, optimizer);
  auto& groups = optimizer.param_groups();
  if (groups.size() != states.lrs.size()) return;
  for (size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(states.lrs[i]);
}

}  // namespace fullshard::optim
