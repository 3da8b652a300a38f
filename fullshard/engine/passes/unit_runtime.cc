// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/unit_runtime.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/engine/plan/unit_name.h"

namespace fullshard::engine {

UnitRuntime::UnitRuntime(const UnitContext& context, int index, const UnitPlan& plan,
                         std::vector<std::unique_ptr<ParamGroup>> groups)
    : context_(context),
      index_(index),
      path_(plan.path),
      owner_(describe_unit(plan.path)),
      part_(plan.state->vocabulary_part()),
      groups_(std::move(groups)) {
  for (const auto& group : groups_) {
    if (group->is_released_at_rest()) numel_ += group->layout().numel();
    if (group->trainable()) num_trainable_ += static_cast<int>(group->layout().slots().size());
    has_frozen_ |= !group->trainable() && group->is_released_at_rest();
    seen_.emplace_back(group->layout().slots().size(), 0);
  }
  hook_gradients();
}

UnitRuntime::~UnitRuntime() {
  for (const auto& group : groups_) {
    if (!group->trainable()) continue;
    for (const auto& parameter : group->parameters()) nn::clear_gradient_hook(parameter);
  }
}

void UnitRuntime::hook_gradients() {
  for (const auto& owned : groups_) {
    auto* group = owned.get();
    if (!group->trainable()) continue;
    int slot = 0;
    for (const auto& parameter : group->parameters()) {
      // A gradient may be the first thing of a backward: of a loss that a forward kept beside its
      // outputs, say. What parameter.grad() shows between backwards is gone before autograd adds.
      nn::set_gradient_hook(
          parameter,
          [this, group, slot](const at::Tensor& tensor) { receive_gradient(*group, slot, tensor); },
          [this] { context_.events->backward_runs(); });
      nn::set_gradient_sink(
          parameter, [this, group, slot] { return open_sink(*group, slot); },
          [this, group, slot](const at::Tensor& gradient) {
            return take_gradient(*group, slot, gradient);
          });
      ++slot;
    }
  }
}

bool UnitRuntime::is_live() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->is_live(); });
}

bool UnitRuntime::is_arriving() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group->is_arriving(); });
}

bool UnitRuntime::has_unreduced() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group->trainable() && group->gradients().has_unreduced();
  });
}

void UnitRuntime::begin_unshard() {
  ++context_.counters->unshards;
  ++context_.counters->prefetches;
  ++context_.counters->overlapped;
  context_.counters->ahead(numel_);
  ahead_ = true;
  for (const auto& group : groups_) group->begin_unshard();
}

void UnitRuntime::settle() {
  for (const auto& group : groups_) {
    if (group->is_arriving()) group->finish_unshard();
  }
}

void UnitRuntime::mark_used() {
  if (!ahead_) return;
  context_.counters->ahead(-numel_);
  ahead_ = false;
}

void UnitRuntime::unshard() {
  for (const auto& group : groups_) group->await_update();
  if (!is_live()) {
    if (!is_arriving()) ++context_.counters->unshards;
    for (const auto& group : groups_) group->begin_unshard();
    for (const auto& group : groups_) group->finish_unshard();
  }
  mark_used();
}

void UnitRuntime::reshard() {
  mark_used();
  for (const auto& group : groups_) group->reshard();
}

void UnitRuntime::reshard_trainable() {
  for (const auto& group : groups_) {
    if (group->trainable()) group->reshard();
  }
}

void UnitRuntime::reshard_frozen() {
  for (const auto& group : groups_) {
    if (!group->trainable()) group->reshard();
  }
}

void UnitRuntime::before_forward(const std::vector<at::Tensor>&) {
  context_.events->before_forward(*this);
  ++depth_;
}

void UnitRuntime::check_untouched() const {
  for (const auto& group : groups_) group->check_untouched();
}

bool UnitRuntime::registers_backward_hooks(const std::vector<at::Tensor>& outputs) const {
  return at::GradMode::is_enabled() &&
         std::any_of(outputs.begin(), outputs.end(),
                     [](const at::Tensor& output) { return output.requires_grad(); });
}

void UnitRuntime::after_forward(const std::vector<at::Tensor>& inputs,
                                const std::vector<at::Tensor>& outputs) {
  --depth_;
  check_untouched();
  const auto& recomputes = *context_.recomputes;
  if (!recomputes.is_replaying()) context_.watch->after_forward(owner_, outputs);
  const bool was_recomputed = std::exchange(call_is_recomputed_, false);
  const bool has_backward = registers_backward_hooks(outputs);
  if (recomputes.is_recording()) expect_recompute(recomputes.id());
  if (has_backward) {
    hook_outputs(inputs, outputs);
    if (has_frozen_) hook_inputs(inputs);
    ran_with_gradients_ = true;
    has_plain_call_ |= !was_recomputed && !recomputes.is_replaying();
  }
  context_.events->after_forward(*this, has_backward);
}

void UnitRuntime::forward_failed() noexcept {
  depth_ = std::max(depth_ - 1, 0);
  call_is_recomputed_ = false;
  try {
    if (!context_.recomputes->is_replaying()) reshard();
  } catch (const std::exception&) {
    // The forward's own error is on its way and tells more.
  }
}

void UnitRuntime::enter_recompute(nn::RecomputePass pass, uint64_t id) {
  context_.events->enter_recompute(pass, id);
  if (pass != nn::RecomputePass::record) return;
  call_is_recomputed_ = true;
  expect_recompute(id);
}

void UnitRuntime::leave_recompute() noexcept { context_.events->leave_recompute(); }

void InnerHooks::enter_recompute(nn::RecomputePass pass, uint64_t id) {
  unit_.context_.events->enter_recompute(pass, id);
  if (pass == nn::RecomputePass::record) unit_.expect_recompute(id);
}

void InnerHooks::leave_recompute() noexcept { unit_.context_.events->leave_recompute(); }

void UnitRuntime::expect_recompute(uint64_t id) {
  if (last_recompute_ == id) return;
  last_recompute_ = id;
  ++num_recomputed_calls_;
  ran_with_gradients_ = true;
  for (auto* lender : lenders_) lender->expect_recompute(id);
}

int UnitRuntime::expected_gradients() const {
  return std::max(1, static_cast<int>(has_plain_call_) + num_recomputed_calls_);
}

void UnitRuntime::hook_outputs(const std::vector<at::Tensor>& inputs,
                               const std::vector<at::Tensor>& outputs) {
  for (const auto& output : outputs) {
    // A tensor that is only passed through gets its gradient when the unit before is done.
    const bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
      return input.is_same(output);
    });
    if (is_input || !output.requires_grad()) continue;
    output.register_hook([this, life = life_](const at::Tensor& gradient) {
      if (const auto held = life.lock()) before_backward(gradient);
    });
  }
}

void UnitRuntime::hook_inputs(const std::vector<at::Tensor>& inputs) {
  for (const auto& input : inputs) {
    if (!input.requires_grad()) continue;
    ++inputs_pending_;
    input.register_hook([this, life = life_](const at::Tensor&) {
      if (const auto held = life.lock()) input_has_gradient();
    });
  }
}

void UnitRuntime::before_backward(const at::Tensor& output_gradient) {
  // Autograd records this backward, to read parameters again when they are released.
  check(!at::GradMode::is_enabled() || numel_ == 0,
        "backward of {} with create_graph = true: second derivatives need whole parameters, and "
        "those of this unit are released after the pass; leave create_graph out, or train on one "
        "rank, with NO_SHARD or under ZeRO stage 1 or 2",
        owner_);
  context_.events->backward_runs();
  context_.watch->before_backward(owner_, output_gradient);
  if (is_done_ && !ended_early_) return;
  context_.events->before_backward(*this);
  check_untouched();
}

void UnitRuntime::receive_gradient(ParamGroup& group, int slot, const at::Tensor& parameter) {
  at::NoGradGuard no_grad;
  context_.events->gradient_arrived();
  group.await_update();
  if (parameter.grad().defined()) {
    auto gradient = std::exchange(parameter.mutable_grad(), at::Tensor());
    group.gradients().receive(slot, gradient);
  }
  if (context_.watch->watches_parameter_gradients()) {
    context_.watch->gradient(owner_, group.layout().slots()[slot].name,
                             group.gradients().received(slot));
  }
  if (parameters_pending_ < 0) parameters_pending_ = num_trainable_;
  size_t position = 0;
  while (groups_[position].get() != &group) ++position;
  if (++seen_[position][slot] != expected_gradients()) return;
  if (--parameters_pending_ == 0) finish_trainable();
}

nn::GradientSink UnitRuntime::open_sink(ParamGroup& group, int slot) {
  at::NoGradGuard no_grad;
  context_.events->backward_runs();
  group.await_update();
  return group.gradients().open_slot(slot);
}

bool UnitRuntime::take_gradient(ParamGroup& group, int slot, const at::Tensor& gradient) {
  context_.events->backward_runs();
  group.await_update();
  return group.gradients().take_whole(slot, gradient);
}

void UnitRuntime::finish_trainable() {
  is_done_ = true;
  ended_early_ = false;
  reshard_trainable();
  if (inputs_pending_ == 0 && !has_nested_) reshard_frozen();
  context_.events->gradients_ready(*this);
}

void UnitRuntime::input_has_gradient() {
  if (inputs_pending_ == 0 || --inputs_pending_ > 0) return;
  if (is_trainable() && !is_done_) return;
  reshard_frozen();
  if (!is_trainable()) context_.events->gradients_ready(*this);
}

void UnitRuntime::end_backward() {
  if (is_done_) return;
  is_done_ = true;
  ended_early_ = true;
  reshard();
}

void UnitRuntime::begin_reduce() {
  at::NoGradGuard no_grad;
  ++context_.counters->reductions;
  for (const auto& group : groups_) {
    group->await_update();  // a unit that no forward called: it may still read its gradients
    if (group->trainable()) group->gradients().begin_reduce();
  }
}

void UnitRuntime::finish_reduce() {
  at::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients().finish_reduce();
  }
}

void UnitRuntime::advance_reduce() {
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients().advance_reduce();
  }
}

void UnitRuntime::begin_replica_sum() {
  at::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients().begin_replica_sum();
  }
}

void UnitRuntime::finish_replica_sum() {
  at::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients().finish_replica_sum();
  }
}

void UnitRuntime::finish_pass() {
  reshard();
  ran_with_gradients_ = false;
  has_plain_call_ = false;
  num_recomputed_calls_ = 0;
  call_is_recomputed_ = false;
  is_done_ = false;
  ended_early_ = false;
  inputs_pending_ = 0;
  parameters_pending_ = -1;
  for (auto& slots : seen_) std::fill(slots.begin(), slots.end(), 0);
}

void UnitRuntime::abandon_pass() {
  finish_pass();
  depth_ = 0;
  for (const auto& group : groups_) {
    if (group->trainable()) group->gradients().drop_unreduced();
  }
}

std::vector<ParamGroup*> trainable_groups(const Units& units) {
  std::vector<ParamGroup*> groups;
  for (const auto& unit : units) {
    for (const auto& group : unit->groups()) {
      if (group->trainable()) groups.push_back(group.get());
    }
  }
  return groups;
}

}  // namespace fullshard::engine
