#include "fullshard/shard/unit_runtime.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "fullshard/shard/engine.h"
#include "fullshard/shard/unit_name.h"

namespace fullshard {

UnitRuntime::UnitRuntime(Engine& engine, int index, const UnitPlan& plan,
                         std::vector<std::unique_ptr<ParamGroup>> groups)
    : engine_(engine),
      index_(index),
      path_(plan.path),
      owner_(describe_unit(plan.path)),
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
    for (const auto& parameter : group->parameters()) clear_gradient_hook(parameter);
  }
}

void UnitRuntime::hook_gradients() {
  for (const auto& owned : groups_) {
    auto* group = owned.get();
    if (!group->trainable()) continue;
    int slot = 0;
    for (const auto& parameter : group->parameters()) {
      set_gradient_hook(parameter, [this, group, slot](const at::Tensor& tensor) {
        receive_gradient(*group, slot, tensor);
      });
      set_gradient_sink(
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
  ++engine_.counters().unshards;
  ++engine_.counters().prefetches;
  ++engine_.counters().overlapped;
  engine_.counters().ahead(numel_);
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
  engine_.counters().ahead(-numel_);
  ahead_ = false;
}

void UnitRuntime::unshard() {
  if (!is_live()) {
    if (!is_arriving()) ++engine_.counters().unshards;
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
  engine_.forward_starts(*this);
  if (engine_.is_replaying()) {
    engine_.backward_begins(*this);
  } else {
    unshard();
  }
  for (const auto& group : groups_) group->check_untouched();
  ++depth_;
  if (!engine_.is_replaying()) engine_.prefetch_forward(*this);
}

bool UnitRuntime::registers_backward_hooks(const std::vector<at::Tensor>& outputs) const {
  return at::GradMode::is_enabled() &&
         std::any_of(outputs.begin(), outputs.end(),
                     [](const at::Tensor& output) { return output.requires_grad(); });
}

void UnitRuntime::after_forward(const std::vector<at::Tensor>& inputs,
                                const std::vector<at::Tensor>& outputs) {
  --depth_;
  for (const auto& group : groups_) group->check_untouched();
  engine_.forward_ends(*this);
  if (!engine_.is_replaying()) engine_.watch().after_forward(owner_, outputs);
  const bool was_recomputed = std::exchange(call_is_recomputed_, false);
  const bool has_backward = registers_backward_hooks(outputs);
  if (engine_.is_recording()) expect_recompute(engine_.recompute_id());
  if (has_backward) {
    hook_outputs(inputs, outputs);
    if (has_frozen_) hook_inputs(inputs);
    ran_with_gradients_ = true;
    has_plain_call_ |= !was_recomputed && !engine_.is_replaying();
  }
  // Not by what this rank's outputs need: ranks keep and gather alike.
  const bool takes_part = has_backward || (is_trainable() && engine_.expects_backward());
  const bool stays = engine_.is_replaying() || ((takes_part || engine_.is_recording()) &&
                                                engine_.schedule().keeps_after_forward(
                                                    index_, engine_.counters().live_numel));
  if (!stays && depth_ == 0) reshard();
  // What was fetched ahead of a forward that is over now will not be used by it.
  if (index_ == 0 && depth_ == 0 && !engine_.is_replaying() && !has_backward) engine_.release_all();
}

void UnitRuntime::forward_failed() noexcept {
  depth_ = std::max(depth_ - 1, 0);
  call_is_recomputed_ = false;
  try {
    if (!engine_.is_replaying()) reshard();
  } catch (const std::exception&) {
    // The forward's own error is on its way and tells more.
  }
}

void UnitRuntime::enter_recompute(RecomputePass pass, uint64_t id) {
  engine_.push_recompute(pass, id);
  if (pass != RecomputePass::record) return;
  call_is_recomputed_ = true;
  expect_recompute(id);
}

void UnitRuntime::leave_recompute() noexcept { engine_.pop_recompute(); }

void InnerHooks::enter_recompute(RecomputePass pass, uint64_t id) {
  unit_.engine_.push_recompute(pass, id);
  if (pass == RecomputePass::record) unit_.expect_recompute(id);
}

void InnerHooks::leave_recompute() noexcept { unit_.engine_.pop_recompute(); }

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
  std::weak_ptr<Engine> weak = engine_.weak_from_this();
  for (const auto& output : outputs) {
    // A tensor that is only passed through gets its gradient when the unit before is done.
    const bool is_input = std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) {
      return input.is_same(output);
    });
    if (is_input || !output.requires_grad()) continue;
    output.register_hook([this, weak](const at::Tensor& gradient) {
      if (auto engine = weak.lock()) before_backward(gradient);
    });
  }
}

void UnitRuntime::hook_inputs(const std::vector<at::Tensor>& inputs) {
  std::weak_ptr<Engine> weak = engine_.weak_from_this();
  for (const auto& input : inputs) {
    if (!input.requires_grad()) continue;
    ++inputs_pending_;
    input.register_hook([this, weak](const at::Tensor&) {
      if (auto engine = weak.lock()) input_has_gradient();
    });
  }
}

void UnitRuntime::before_backward(const at::Tensor& output_gradient) {
  engine_.ensure_backward();
  engine_.watch().before_backward(owner_, output_gradient);
  if (is_done_ && !ended_early_) return;
  engine_.backward_begins(*this);
  for (const auto& group : groups_) group->check_untouched();
}

void UnitRuntime::receive_gradient(ParamGroup& group, int slot, const at::Tensor& parameter) {
  at::NoGradGuard no_grad;
  engine_.ensure_backward();
  engine_.gradient_arrived();
  if (parameter.grad().defined()) {
    auto gradient = std::exchange(parameter.mutable_grad(), at::Tensor());
    group.gradients().receive(slot, gradient);
  }
  if (engine_.watch().watches_parameter_gradients()) {
    engine_.watch().gradient(owner_, group.layout().slots()[slot].name,
                             group.gradients().received(slot));
  }
  if (parameters_pending_ < 0) parameters_pending_ = num_trainable_;
  size_t position = 0;
  while (groups_[position].get() != &group) ++position;
  if (++seen_[position][slot] != expected_gradients()) return;
  if (--parameters_pending_ == 0) finish_trainable();
}

GradientSink UnitRuntime::open_sink(ParamGroup& group, int slot) {
  at::NoGradGuard no_grad;
  engine_.ensure_backward();
  return group.gradients().open_slot(slot);
}

bool UnitRuntime::take_gradient(ParamGroup& group, int slot, const at::Tensor& gradient) {
  engine_.ensure_backward();
  return group.gradients().take_whole(slot, gradient);
}

void UnitRuntime::finish_trainable() {
  is_done_ = true;
  ended_early_ = false;
  reshard_trainable();
  if (inputs_pending_ == 0) reshard_frozen();
  engine_.unit_is_ready(*this);
}

void UnitRuntime::input_has_gradient() {
  if (inputs_pending_ == 0 || --inputs_pending_ > 0) return;
  if (is_trainable() && !is_done_) return;
  reshard_frozen();
  if (!is_trainable()) engine_.unit_is_ready(*this);
}

void UnitRuntime::end_backward() {
  if (is_done_) return;
  is_done_ = true;
  ended_early_ = true;
  reshard();
}

void UnitRuntime::begin_reduce() {
  at::NoGradGuard no_grad;
  ++engine_.counters().reductions;
  for (const auto& group : groups_) {
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

}  // namespace fullshard
