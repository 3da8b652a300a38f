// SPDX-License-Identifier: Apache-2.0
// One unit at run time: its groups, and the hooks around its forward and backward. It reports to
// UnitEvents and asks nothing else of anybody; whoever drives the passes gathers, reshards and
// reduces it through the functions below.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fullshard/engine/gradients/non_finite_watch.h"
#include "fullshard/engine/passes/param_group.h"
#include "fullshard/engine/passes/recompute_stack.h"
#include "fullshard/engine/passes/unit_events.h"
#include "fullshard/engine/plan/counters.h"
#include "fullshard/engine/plan/wrap.h"
#include "fullshard/nn/forward_hooks.h"
#include "fullshard/nn/gradient_hook.h"

namespace fullshard::engine {

class UnitRuntime;

// What the units of one model have in common; outlives them.
struct UnitContext {
  UnitEvents* events = nullptr;
  const RecomputeStack* recomputes = nullptr;  // as `events` was told
  ShardCounters* counters = nullptr;
  NonFiniteWatch* watch = nullptr;
};

// Around marked modules inside a unit that are no units themselves: only their recomputed calls
// matter, since each brings gradients of its own to the unit's parameters.
class InnerHooks : public nn::ForwardHooks {
 public:
  explicit InnerHooks(UnitRuntime& unit) : unit_(unit) {}
  void before_forward(const std::vector<at::Tensor>&) override {}
  void after_forward(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&) override {}
  void forward_failed() noexcept override {}
  void enter_recompute(nn::RecomputePass pass, uint64_t id) override;
  void leave_recompute() noexcept override;

 private:
  UnitRuntime& unit_;
};

class UnitRuntime : public nn::ForwardHooks {
 public:
  UnitRuntime(const UnitContext& context, int index, const UnitPlan& plan,
              std::vector<std::unique_ptr<ParamGroup>> groups);
  ~UnitRuntime() override;

  // Hooks of the forward; called by the module's thread.
  void before_forward(const std::vector<at::Tensor>& inputs) override;
  void after_forward(const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& outputs) override;
  void forward_failed() noexcept override;
  void enter_recompute(nn::RecomputePass pass, uint64_t id) override;
  void leave_recompute() noexcept override;

  // Hooks that stay in a graph hold `life` while they run, and do nothing once it is gone.
  void start(std::weak_ptr<void> life) { life_ = std::move(life); }
  nn::ForwardHooks* inner_hooks() { return &inner_hooks_; }
  // A unit around this one whose tied parameters get gradients from here.
  void add_lender(UnitRuntime& lender) { lenders_.push_back(&lender); }
  void note_nested() { has_nested_ = true; }

  // Hooks of the backward; called by autograd's thread.
  void before_backward(const at::Tensor& output_gradient);
  void receive_gradient(ParamGroup& group, int slot, const at::Tensor& parameter);
  nn::GradientSink open_sink(ParamGroup& group, int slot);
  bool take_gradient(ParamGroup& group, int slot, const at::Tensor& gradient);
  void input_has_gradient();

  void begin_unshard();  // ahead of its use
  void unshard();
  void reshard();
  bool is_live() const;
  bool is_arriving() const;
  void settle();                 // waits for a gather in flight
  void check_untouched() const;  // as ParamGroup::check_untouched

  // Reduction of the trainable groups, issued and waited for.
  void begin_reduce();
  void finish_reduce();
  void advance_reduce();
  void begin_replica_sum();
  void finish_replica_sum();

  // Its turn in the backward is over, whether this rank had all of its gradients or not.
  void end_backward();

  // Leaves the unit resting: after a backward, or after one that failed.
  void finish_pass();
  void abandon_pass();

  int index() const { return index_; }
  const std::string& path() const { return path_; }
  int64_t numel() const { return numel_; }  // released at rest, padding included
  bool ran_with_gradients() const { return ran_with_gradients_; }
  // The backward of an embedding asks for shapes only, unless its forward runs once more in it.
  bool is_read_in_backward() const {
    return part_ != nn::VocabularyPart::embedding || num_recomputed_calls_ > 0;
  }
  bool is_head() const { return part_ == nn::VocabularyPart::head; }  // of a large vocabulary
  bool has_unreduced() const;
  bool is_called() const { return depth_ > 0; }  // inside a call of its forward
  bool is_trainable() const { return num_trainable_ > 0; }
  const std::vector<std::unique_ptr<ParamGroup>>& groups() const { return groups_; }

 private:
  friend class InnerHooks;
  bool registers_backward_hooks(const std::vector<at::Tensor>& outputs) const;
  void hook_outputs(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs);
  void hook_inputs(const std::vector<at::Tensor>& inputs);
  void hook_gradients();
  void expect_recompute(uint64_t id);
  int expected_gradients() const;
  void finish_trainable();
  void reshard_trainable();
  void reshard_frozen();
  void mark_used();

  const UnitContext& context_;
  std::weak_ptr<void> life_;
  InnerHooks inner_hooks_{*this};
  std::vector<UnitRuntime*> lenders_;
  int index_;
  std::string path_;
  std::string owner_;  // "unit 'blocks.3'", for messages
  nn::VocabularyPart part_;
  std::vector<std::unique_ptr<ParamGroup>> groups_;
  int64_t numel_ = 0;
  int num_trainable_ = 0;
  bool has_frozen_ = false;
  bool has_nested_ = false;  // units inside, whose gradients come through its frozen parameters

  // Between the forward and the end of its backward.
  int depth_ = 0;       // calls of forward that are open
  bool ahead_ = false;  // gathered, not yet used
  bool ran_with_gradients_ = false;
  bool has_plain_call_ = false;   // its gradients come once, whatever the number of calls
  int num_recomputed_calls_ = 0;  // each brings gradients of its own
  uint64_t last_recompute_ = 0;
  bool call_is_recomputed_ = false;
  bool is_done_ = false;      // in this backward: every gradient is in, or its turn is over
  bool ended_early_ = false;  // its turn was over before its gradients came
  int inputs_pending_ = 0;
  int parameters_pending_ = -1;         // -1: no gradient yet in this backward
  std::vector<std::vector<int>> seen_;  // gradients per group and slot
};

using Units = std::vector<std::unique_ptr<UnitRuntime>>;

std::vector<ParamGroup*> trainable_groups(const Units& units);  // units in order of the module tree

}  // namespace fullshard::engine
