// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/pass_controller.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/passes/present_pass.h"
#include "fullshard/engine/plan/unit_name.h"

namespace fullshard::engine {
namespace {

thread_local PresentPass present;

}  // namespace

const PresentPass& present_pass() { return present; }

PassController::PassController(const Units& units, Schedule& schedule, const GroupContext& context,
                               NonFiniteWatch& watch)
    : units_(units),
      schedule_(schedule),
      context_(context),
      watch_(watch),
      late_vote_(context.mesh->everyone()),
      holders_(*context.mesh, context.one_copy),
      pass_({[this](int unit) { pass_over(*units_[unit]); },
             [this](int unit) { units_[unit]->begin_unshard(); },
             [this](int unit) { end_unit(*units_[unit]); }}),
      reductions_({[this](int unit) { units_[unit]->begin_reduce(); },
                   [this](int unit) {
                     units_[unit]->finish_reduce();
                     replica_sums_.issue(unit);
                   },
                   [this](int unit) { units_[unit]->advance_reduce(); }}),
      replica_sums_({[this](int unit) { units_[unit]->begin_replica_sum(); },
                     [this](int unit) { units_[unit]->finish_replica_sum(); },
                     {}}) {}

void PassController::start(std::weak_ptr<void> life) {
  life_ = std::move(life);
  std::vector<at::Tensor> parameters;
  for (const auto* group : trainable_groups(units_)) {
    for (const auto& parameter : group->parameters()) parameters.push_back(parameter);
  }
  module_gradients_ = ModuleGradients(std::move(parameters));
}

void PassController::check_awake(std::string_view what) const {
  check(!is_asleep_,
        "{}: the model sleeps: its parameters, gradients and states are in host memory; call "
        "sharded.wake() first",
        what);
}

void PassController::before_forward(UnitRuntime& unit) {
  if (is_asleep_) [[unlikely]]
    check_awake("forward of " + describe_unit(unit.path()));
  if (!has_values_) [[unlikely]] {
    fail(
        "forward of {}: the model was built deferred and its parameters have no values yet; call "
        "load_weights or initialise_weights first, or write all of them in a gather_full scope "
        "with write_back",
        describe_unit(unit.path()));
  }
  const bool is_whole_forward =
      unit.index() == 0 && !unit.is_called() && !recomputes_.is_replaying();
  if (is_whole_forward && registered_) registered_->check();
  if (is_stale()) recover();
  if (holders_.may_have_news() && is_outermost_forward()) [[unlikely]]
    take_in_steps();
  if (recomputes_.is_replaying()) {  // inside a backward, where the unit has its turn
    begin_unit(unit);
    unit.unshard();  // also where its backward alone would not read it
    unit.check_untouched();
    return;
  }
  if (expects_backward()) {
    schedule_.note_start(unit.index());
    log_.start(unit.index());
  } else if (schedule_.options().repeats_forward) {
    schedule_.note_start(unit.index());
  }
  present = {recomputes_.is_replaying() ? PresentPass::Kind::backward : PresentPass::Kind::forward,
             unit.path()};
  unit.unshard();
  unit.check_untouched();
  prefetch_after(unit);
}

void PassController::after_forward(UnitRuntime& unit, bool has_backward) {
  if (expects_backward()) {
    schedule_.note_end(unit.index());
    log_.end(unit.index());
  }
  present.unit.clear();          // what comes next is the root's, until a unit says otherwise
  if (unit.is_called()) return;  // by a call around this one
  if (!stays_after_forward(unit, has_backward)) unit.reshard();
  // What was fetched ahead of a forward that is over now will not be used by it.
  const bool is_over = unit.index() == 0 && !recomputes_.is_replaying() && !has_backward;
  if (is_over && !schedule_.options().repeats_forward) release_all();
}

// Not by what this rank's outputs need: ranks keep and gather alike.
bool PassController::stays_after_forward(const UnitRuntime& unit, bool has_backward) const {
  if (recomputes_.is_replaying()) return true;
  const bool takes_part = has_backward || (unit.is_trainable() && expects_backward());
  if (!takes_part && !recomputes_.is_recording()) return false;
  if (!unit.is_read_in_backward()) return false;
  const bool is_last = unit.is_head() && !recomputes_.is_recording();
  return schedule_.keeps_after_forward(unit.index(), context_.counters->live_numel, is_last);
}

// As far as one can tell: a recomputed call runs without gradients at first.
bool PassController::expects_backward() const {
  return !recomputes_.is_replaying() && (at::GradMode::is_enabled() || recomputes_.is_recording());
}

void PassController::enter_recompute(nn::RecomputePass pass, uint64_t id) {
  recomputes_.push(pass, id);
  if (!recomputes_.is_replaying()) log_.enter_recomputed();
}

void PassController::leave_recompute() noexcept {
  if (recomputes_.is_empty()) return;  // recover() came in between
  if (!recomputes_.is_replaying()) log_.leave_recomputed();
  recomputes_.pop();
}

int PassController::gathers_in_flight() const {
  int count = 0;
  for (const auto& unit : units_) count += unit->is_arriving();
  return count;
}

void PassController::prefetch_after(const UnitRuntime& unit) {
  if (!schedule_.prefetches_forward()) return;
  const auto& counters = *context_.counters;
  for (const int index : schedule_.next_in_forward(unit.index())) {
    auto& next = *units_[index];
    if (next.numel() == 0 || next.is_live() || next.is_arriving()) continue;
    if (!schedule_.may_prefetch(index, gathers_in_flight(), counters.live_numel,
                                counters.ahead_numel)) {
      return;
    }
    next.begin_unshard();
  }
}

void PassController::before_backward(UnitRuntime& unit) { begin_unit(unit); }

void PassController::begin_unit(UnitRuntime& unit) {
  backward_runs();
  present = {PresentPass::Kind::backward, unit.path()};
  pass_.begin(unit.index());
  if (unit.is_read_in_backward()) unit.unshard();
  pass_.gather_ahead(unit.index());
}

// Other ranks may gather it in this backward, and this one has no use for it. Where ranks look at
// one copy, nobody waits for those that do not look.
void PassController::pass_over(UnitRuntime& unit) {
  if (unit.numel() == 0 || unit.is_live() || unit.is_arriving() || context_.one_copy) return;
  if (unit.is_read_in_backward()) unit.unshard();
}

// Its slots that got no gradient count as zeros.
void PassController::end_unit(UnitRuntime& unit) {
  unit.end_backward();
  if (context_.defers_reduction || wants_some_gradients_ || !unit.is_trainable()) return;
  reductions_.issue(unit.index());
  context_.counters->overlapped += reductions_.in_flight() > 0;
}

bool PassController::is_stale() const {
  return phase_ == Phase::backward && backward_task_.expired();
}

void PassController::backward_runs() {
  if (is_stale()) recover();
  if (phase_ == Phase::backward) return;
  take_in_gradients();
  phase_ = Phase::backward;
  ++gradient_version_;
  any_gradient_ = false;
  had_gradients_ = has_gradients();
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  wants_some_gradients_ = wanted != nullptr && !wanted->empty();
  module_gradients_.clear();
  open_pass();
  auto task = std::make_shared<int>();
  backward_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback([this, life = life_, task] {
    if (const auto held = life.lock()) finish_backward();
  });
}

bool PassController::is_outermost_forward() const {
  return phase_ == Phase::resting &&
         std::none_of(units_.begin(), units_.end(),
                      [](const auto& unit) { return unit->is_called(); });
}

void PassController::take_in_steps() {
  if (!holders_.may_have_news()) return;
  const c10::InferenceMode trains(false);
  const auto news = holders_.ask();
  if (news.values) holders_.publish();
  if (news.cleared) drop_gradients();
}

// New values are not published in the middle of a graph that saw the old ones: where it needs
// those, torch says so, as it does when a plain parameter was stepped.
void PassController::take_in_gradients() {
  if (!holders_.may_have_news()) return;
  const at::NoGradGuard no_grad;
  if (holders_.has_new_values()) {
    for (auto* group : trainable_groups(units_)) group->bump_versions();
  }
  if (holders_.ask().cleared) drop_gradients();
  holders_.hide();
}

// Everything here is the same on all ranks whose forwards called the same units.
void PassController::open_pass() {
  std::vector<bool> is_live;
  for (const auto& unit : units_) is_live.push_back(unit->is_live() || unit->is_arriving());
  auto steps = reverse_order(log_.entries());
  // A frozen unit takes part where gradients pass through it.
  std::erase_if(steps, [this](const BackwardStep& step) {
    const auto& unit = *units_[step.unit];
    return !unit.is_trainable() && !unit.ran_with_gradients();
  });
  for (auto& step : steps) step.gathers = units_[step.unit]->is_read_in_backward();
  plan_gathers_ahead(steps, schedule_, is_live);
  pass_.open(std::move(steps), static_cast<int>(units_.size()));
  reductions_.limit(schedule_.max_reductions_in_flight());
  replica_sums_.limit(schedule_.max_reductions_in_flight());
}

// Peers wait for this rank's part of their sums: what can be done for them is done now and then.
void PassController::gradient_arrived() {
  backward_runs();
  any_gradient_ = true;
  reductions_.advance();
}

void PassController::gradients_ready(UnitRuntime& unit) { pass_.mark_ready(unit.index()); }

void PassController::finish_backward() {
  at::NoGradGuard no_grad;
  const bool only_asked = wants_some_gradients_ && !any_gradient_;  // autograd::grad
  pass_.finish();
  if (!context_.defers_reduction) {
    flush_reductions();
    reduce_late();
    context_.draining->settle();
  }
  for (const auto& unit : units_) unit->finish_pass();
  log_.start_over();
  if (!only_asked) module_gradients_.poison();
  schedule_.seal();
  phase_ = Phase::resting;
  present = {};
  backward_task_.reset();
  holders_.show();
}

// Gradients that came after their unit's turn, or in a backward that asked for some only. Which
// units have any may differ between ranks, so they ask each other.
void PassController::reduce_late() {
  std::vector<bool> is_late;
  for (const auto& unit : units_) is_late.push_back(unit->has_unreduced());
  if (context_.over_ranks) is_late = late_vote_.ask(std::move(is_late));
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!is_late[i]) continue;
    units_[i]->begin_reduce();
    units_[i]->finish_reduce();
    units_[i]->begin_replica_sum();
    units_[i]->finish_replica_sum();
  }
}

void PassController::flush_reductions() {
  reductions_.flush();
  replica_sums_.flush();
}

// Nothing is in flight afterwards, and no unit is in a pass.
void PassController::abandon_pass() {
  at::NoGradGuard no_grad;
  pass_.open({}, static_cast<int>(units_.size()));
  flush_reductions();
  context_.draining->settle();
  recomputes_.clear();
  log_.clear();
  for (const auto& unit : units_) unit->abandon_pass();
  module_gradients_.clear();
  phase_ = Phase::resting;
  backward_task_.reset();
}

void PassController::recover() {
  // What a failed backward had reduced is mixed with what was there before.
  const bool loses = phase_ == Phase::backward ? had_gradients_ : has_gradients();
  abandon_pass();
  drop_gradients();
  lost_gradients_ = loses;
}

GradientMarks PassController::gradient_marks() const {
  GradientMarks marks;
  for (const auto* group : trainable_groups(units_)) {
    marks.push_back(group->gradients().is_reduced());
  }
  return marks;
}

void PassController::forget_unrun_pass(const GradientMarks& before) {
  abandon_pass();
  holders_.hide();
  const auto groups = trainable_groups(units_);
  for (size_t i = 0; i < groups.size(); ++i) {
    auto& gradients = groups[i]->gradients();
    before.at(i) ? gradients.mark_reduced() : gradients.drop();
  }
  if (has_gradients()) holders_.show();
}

void PassController::settle() noexcept {
  const auto attempt = [](const auto& wait) {
    try {
      wait();
    } catch (const std::exception&) {
      // A rank is gone, and with it the call; whoever met that first has told so.
    }
  };
  attempt([&] { reductions_.flush(); });
  attempt([&] { replica_sums_.flush(); });
  attempt([&] { context_.draining->settle(); });
  for (const auto& unit : units_) attempt([&] { unit->settle(); });
}

bool PassController::has_gradients() const {
  const auto groups = trainable_groups(units_);
  return std::any_of(groups.begin(), groups.end(), [](const ParamGroup* group) {
    return group->gradients().is_reduced() || group->gradients().has_unreduced();
  });
}

void PassController::drop_gradients() {
  ++gradient_version_;
  holders_.hide();
  for (auto* group : trainable_groups(units_)) group->gradients().drop();
  watch_.start_over();
  lost_gradients_ = false;
}

void PassController::note_repeated_pass() {
  check(phase_ == Phase::resting, "a repeated pass: another one is under way");
  ++gradient_version_;
  for (const auto& unit : units_) {
    if (unit->is_trainable()) ++context_.counters->reductions;
  }
  for (auto* group : trainable_groups(units_)) group->gradients().mark_reduced();
  module_gradients_.poison();
  holders_.show();
}

void PassController::check_gradients_kept() {
  check_awake("step() or the gradient norm");
  if (is_stale()) recover();
  check(!lost_gradients_,
        "a backward failed after earlier micro-batches had left gradients, and theirs were dropped "
        "with its own; call zero_grad() and start the accumulation again");
}

void PassController::release_all() {
  for (const auto& unit : units_) unit->reshard();
}

}  // namespace fullshard::engine
