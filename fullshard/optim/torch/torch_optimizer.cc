// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/torch_optimizer.h"

#include <ATen/core/grad_mode.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"

namespace fullshard {
namespace {

// It makes its states beside the tensors that it is given. Masters that rest in host memory it
// updates there; those that are what computation sees stay where they are, and so would its states.
void check_offload(const ShardedModel& model) {
  for (const auto* group : engine::EngineAccess::of(model).trainable_groups()) {
    const auto wanted = group->spec().residence.states;
    if (wanted == tiers::Tier::device) continue;
    const auto parts = group->master_parts();
    if (wanted == tiers::Tier::host && parts.front().tier == tiers::Tier::host) continue;
    fail_as(ErrorKind::usage,
            "a torch::optim::Optimizer keeps its states beside the masters of {}, which rest on "
            "the {}: they cannot rest on the {}; use an optimizer of fullshard:: (AdamW, SGD, …), "
            "or leave offload out",
            group->owner(), name_of(parts.front().tier), name_of(wanted));
  }
}

}  // namespace

PieceParameters::PieceParameters(ShardedModel model, std::optional<ForeignOptimizerRules> rules)
    : model_(std::move(model)), rules_(rules) {
  model_.keep_masters_whole();  // the optimizer's own tensors look at them
  check_offload(model_);
  for (const auto& piece : model_.pieces()) {
    tensors_.push_back(piece.master.detach());
    names_.push_back(piece.name);
  }
}

void PieceParameters::give_gradients(double factor) {
  at::NoGradGuard no_grad;
  const auto pieces = model_.pieces();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!pieces[i].gradient.defined()) continue;
    // Widened first: a 16-bit gradient times the factor may not be a 16-bit number.
    auto gradient = pieces[i].gradient.to(tensors_[i].options());
    if (factor != 1.0) gradient.mul_(factor);
    tensors_[i].mutable_grad() = gradient;
  }
}

void PieceParameters::step(torch::optim::Optimizer& optimizer) {
  check(!dynamic_cast<torch::optim::LBFGS*>(&optimizer),
        "LBFGS cannot step over pieces: it evaluates the loss several times in a step");
  if (rules_) check_foreign_optimizer(*rules_, optimizer);
  engine::EngineAccess::of(model_).is_stepped_by_torch = true;
  // The optimizer sees all pieces at once, inside the first batch; the rest finds them updated.
  bool has_stepped = false;
  model_.update([&](const std::vector<PieceView>&, double factor) {
    if (std::exchange(has_stepped, true)) return;
    give_gradients(factor);
    optimizer.step();
    for (auto& tensor : tensors_) tensor.mutable_grad() = at::Tensor();
  });
}

}  // namespace fullshard
