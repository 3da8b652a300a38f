// SPDX-License-Identifier: Apache-2.0
// The passes over the units of one model: which are gathered, kept and reduced, and in which order.
// Units report events; this decides from the schedule (forward) and from one plan that is the same
// on every rank (backward). docs/schedule.md has the drawings. Owned by the engine; calls come from
// one thread at a time.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "fullshard/engine/gradients/module_gradients.h"
#include "fullshard/engine/gradients/non_finite_watch.h"
#include "fullshard/engine/gradients/reduce_queue.h"
#include "fullshard/engine/passes/backward_pass.h"
#include "fullshard/engine/passes/forward_log.h"
#include "fullshard/engine/passes/late_vote.h"
#include "fullshard/engine/passes/piece_holders.h"
#include "fullshard/engine/passes/recompute_stack.h"
#include "fullshard/engine/passes/unit_events.h"
#include "fullshard/engine/passes/unit_runtime.h"
#include "fullshard/engine/plan/group_context.h"
#include "fullshard/engine/plan/registered_parameters.h"
#include "fullshard/engine/plan/schedule.h"

namespace fullshard::engine {

enum class Phase { resting, backward };

// Which trainable groups hold gradients of finished backwards, in their order.
using GradientMarks = std::vector<bool>;

class PassController : public UnitEvents {
 public:
  // Collective. All of these outlive it; `units` may be filled later, before start().
  PassController(const Units& units, Schedule& schedule, const GroupContext& context,
                 NonFiniteWatch& watch);
  PassController(const PassController&) = delete;
  PassController& operator=(const PassController&) = delete;

  // `life` keeps all of this while autograd's callback at the end of a backward runs; once it is
  // gone that does nothing.
  void start(std::weak_ptr<void> life);
  // From here on every forward of the whole model asks them; they outlive it.
  void look_at_registrations(const RegisteredParameters* registered) { registered_ = registered; }

  void before_forward(UnitRuntime& unit) override;
  void after_forward(UnitRuntime& unit, bool has_backward) override;
  void enter_recompute(nn::RecomputePass pass, uint64_t id) override;
  void leave_recompute() noexcept override;
  void backward_runs() override;
  void before_backward(UnitRuntime& unit) override;
  void gradient_arrived() override;
  void gradients_ready(UnitRuntime& unit) override;

  // After a backward that threw: waits for what is in flight, drops gradients, releases units.
  void recover();
  // After a forward or backward whose work the device was never given, as when a graph of it could
  // not be captured: gradients of earlier backwards, which were marked before, are as they were.
  GradientMarks gradient_marks() const;
  void forget_unrun_pass(const GradientMarks& before);
  // The same for the destruction of units: memory that a collective still writes may not be given
  // to somebody else.
  void settle() noexcept;
  // An error when recover() had to drop gradients of earlier, good backwards too.
  void check_gradients_kept();
  void drop_gradients();
  // A forward and a backward have run on the device without any event, as they did once before.
  void note_repeated_pass();
  // Nothing gathered, nothing in flight.
  void release_all();
  // Collective where an optimizer holds pieces: what an optimizer did by itself since the last
  // backward counts from here on. Before the model is used, between passes.
  void take_in_steps();
  PieceHolders& holders() { return holders_; }
  const PieceHolders& holders() const { return holders_; }

  Phase phase() const { return phase_; }
  bool has_gradients() const;  // of earlier backwards, for the next step
  uint64_t gradient_version() const { return gradient_version_; }
  const RecomputeStack& recomputes() const { return recomputes_; }
  // False for a deferred model until weights are loaded or initialised; forward throws meanwhile.
  bool has_values() const { return has_values_; }
  void set_has_values(bool has) { has_values_ = has; }
  bool is_asleep() const { return is_asleep_; }
  void set_asleep(bool asleep) { is_asleep_ = asleep; }
  void check_awake(std::string_view what) const;  // an error while it sleeps

 private:
  void abandon_pass();
  bool expects_backward() const;
  bool stays_after_forward(const UnitRuntime& unit, bool has_backward) const;
  int gathers_in_flight() const;
  void prefetch_after(const UnitRuntime& unit);
  bool is_stale() const;
  bool is_outermost_forward() const;
  void take_in_gradients();
  void open_pass();
  void begin_unit(UnitRuntime& unit);
  void pass_over(UnitRuntime& unit);
  void end_unit(UnitRuntime& unit);
  void flush_reductions();
  void reduce_late();
  void finish_backward();

  const Units& units_;
  Schedule& schedule_;
  const GroupContext& context_;
  NonFiniteWatch& watch_;
  LateVote late_vote_;
  PieceHolders holders_;
  ForwardLog log_;
  BackwardPass pass_;
  ReduceQueue reductions_;    // or their first stage
  ReduceQueue replica_sums_;  // the second one
  RecomputeStack recomputes_;
  ModuleGradients module_gradients_;
  std::weak_ptr<void> life_;
  const RegisteredParameters* registered_ = nullptr;

  Phase phase_ = Phase::resting;
  bool has_values_ = true;
  bool is_asleep_ = false;
  bool any_gradient_ = false;
  bool had_gradients_ = false;   // before the backward that runs now
  bool lost_gradients_ = false;  // with one that failed
  uint64_t gradient_version_ = 0;
  bool wants_some_gradients_ = false;  // autograd::grad, or backward(inputs)
  // Dies with autograd's task, whether that ends well or not.
  std::weak_ptr<int> backward_task_;
};

}  // namespace fullshard::engine
