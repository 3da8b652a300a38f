// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/torch/torch_optimizer.h"

#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/torch/shown_pieces.h"

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

// Of an optimizer that is not among those tested; empty: any may step.
std::string problem_with(const ForeignOptimizerRules& rules) {
  const bool allows_all = rules.stage == 0 || rules.zero_allow_untested_optimizer;
  if (allows_all && !(rules.offload && rules.zero_force_ds_cpu_optimizer)) return {};
  return "the step of a torch optimizer: the configuration file allows some optimizers only, and "
         "nothing says which one this is; call pieces.step(optimizer), at least the first time";
}

}  // namespace

PieceParameters::PieceParameters(ShardedModel model, std::optional<ForeignOptimizerRules> rules)
    : rules_(rules) {
  model.keep_masters_whole();  // the optimizer's own tensors look at them
  check_offload(model);
  shown_ = std::make_shared<optim::ShownPieces>(std::move(model));
  for (const auto& piece : this->model().pieces()) names_.push_back(piece.name);
  // Which optimizer steps by itself is not known.
  const auto problem = rules_ ? problem_with(*rules_) : "";
  if (!problem.empty()) shown_->forbid(problem);
}

const ShardedModel& PieceParameters::model() const { return shown_->model(); }

const std::vector<at::Tensor>& PieceParameters::tensors() const { return shown_->tensors(); }

void PieceParameters::zero_grad() { shown_->model().zero_grad(); }

void PieceParameters::step(torch::optim::Optimizer& optimizer) {
  check(!dynamic_cast<torch::optim::LBFGS*>(&optimizer),
        "LBFGS cannot step over pieces: it evaluates the loss several times in a step");
  if (rules_) check_foreign_optimizer(*rules_, optimizer);
  shown_->forbid("");
  engine::EngineAccess::of(model()).note_stepped_by_torch();
  // The optimizer sees all pieces at once, inside the first batch; the rest finds them updated.
  bool has_stepped = false;
  shown_->model().update([&](const std::vector<PieceView>&, double factor) {
    if (std::exchange(has_stepped, true)) return;
    shown_->step_with(factor, [&optimizer] { optimizer.step(); });
  });
}

}  // namespace fullshard
