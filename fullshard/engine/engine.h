// SPDX-License-Identifier: Apache-2.0
// The run time of one sharded model: its units, the controller of their passes, and changes of
// their masters. assemble_units builds what it owns. Calls come from one thread at a time: the
// module's in forward, autograd's in backward.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/comm/world/mesh.h"
#include "fullshard/engine/gradients/non_finite_watch.h"
#include "fullshard/engine/passes/master_reader.h"
#include "fullshard/engine/passes/pass_controller.h"
#include "fullshard/engine/passes/unit_runtime.h"
#include "fullshard/engine/passes/update_stream.h"
#include "fullshard/engine/plan/options.h"
#include "fullshard/engine/plan/registered_parameters.h"
#include "fullshard/memory/pool.h"
#include "fullshard/nn/saved_tensor_hooks.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard::engine {

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Collective. Shards the module in place; it must outlive the engine (the facade holds both).
  Engine(torch::nn::Module& module, const World& world, const ShardOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Registers the hooks; needs the shared_ptr, so it is not part of the constructor.
  void start();

  // As PassController has them.
  void recover() { passes_.recover(); }
  GradientMarks gradient_marks() const { return passes_.gradient_marks(); }
  void forget_unrun_pass(const GradientMarks& before) { passes_.forget_unrun_pass(before); }
  void check_gradients_kept() { passes_.check_gradients_kept(); }
  void drop_gradients() { passes_.drop_gradients(); }
  void release_all() { passes_.release_all(); }
  Phase phase() const { return passes_.phase(); }
  bool has_values() const { return passes_.has_values(); }
  void set_has_values(bool has) { passes_.set_has_values(has); }

  // Whether a device can be given the work of a forward and backward once, to repeat it without
  // the host. Empty: it can; else why not, after "because".
  std::string why_not_repeatable() const;
  // A graph has the last pass: from here on gradients are always written to the same places, and
  // what looked for infinities and NaN means what it meant.
  void note_captured_pass();
  void forget_captured_passes();
  // What such work reads and writes beside its inputs: parameters and gradients. It must be done
  // anew where these have changed.
  std::vector<const void*> addresses() const;
  // As PassController has it.
  void note_repeated_pass() { passes_.note_repeated_pass(); }
  bool has_gradients() const { return passes_.has_gradients(); }
  // Another number after every backward, and whenever gradients were dropped.
  uint64_t gradient_version() const { return passes_.gradient_version(); }

  // The next backward sums squares while it reduces.
  void want_squares() { context_.takes_squares = true; }
  // Off: backwards add gradients up locally.
  bool reduces() const { return !context_.defers_reduction; }
  void set_reduces(bool reduces) { context_.defers_reduction = !reduces; }
  // Off: a reduction sends nothing and leaves every rank its own gradient.
  void set_over_ranks(bool on) { context_.over_ranks = on; }
  bool reduces_over_ranks() const { return context_.over_ranks; }

  // Updates that run beside the caller's stream. The one entered must leave before it ends.
  void enter_stream(UpdateStream& stream) { streams_.push_back(&stream); }
  void leave_stream(UpdateStream& stream) { std::erase(streams_, &stream); }
  // The host waits for all of them: masters and states may be read and written.
  void settle_updates();

  // An error when a parameter came into the module after it was sharded.
  void check_registered() const { registered_->check(); }

  // Those that read masters and states beside training. The one entered must leave before it ends.
  void enter_reader(MasterReader& reader) { readers_.push_back(&reader); }
  void leave_reader(MasterReader& reader) { std::erase(readers_, &reader); }
  // Before masters or states change; begin_change() does it.
  void settle_readers();

  // Optimizers that step over pieces by themselves; as PassController has it.
  PieceHolders& piece_holders() { return passes_.holders(); }
  void take_in_steps() { passes_.take_in_steps(); }
  // By an optimizer whose states are not held here.
  bool is_stepped_by_torch() const {
    return is_stepped_by_torch_ || passes_.holders().has_new_values();
  }
  void note_stepped_by_torch() { is_stepped_by_torch_ = true; }

  // Around a sleep (sleep.h). At rest nothing is gathered, reduced or updated, and nobody looks at
  // full parameters.
  void come_to_rest(std::string_view what);
  void leave_device(const memory::Relocation& relocation);
  void return_to_device(const memory::Relocation& relocation);
  bool is_asleep() const { return passes_.is_asleep(); }
  void set_asleep(bool asleep) { passes_.set_asleep(asleep); }
  // An error that says so otherwise.
  void check_awake(std::string_view what) const { passes_.check_awake(what); }

  // Marks around a change of the masters, by the optimizer or, as `what`, by somebody else.
  void begin_update();
  void begin_change(std::string_view what);
  void finish_group_update(ParamGroup& group);
  void finish_update();

  NonFiniteWatch& watch() { return watch_; }
  const NonFiniteWatch& watch() const { return watch_; }
  int open_scopes = 0;  // of gather_full

  const Mesh& mesh() const { return mesh_; }
  const Schedule& schedule() const { return schedule_; }
  const ShardOptions& options() const { return options_; }
  const ShardingDecision& decision() const { return decision_; }
  const WrapPlan& plan() const { return plan_; }
  const Units& units() const { return units_; }
  std::vector<ParamGroup*> trainable_groups() const {
    return fullshard::engine::trainable_groups(units_);
  }
  // Indices of trainable groups in the order in which forwards were seen to need them.
  std::vector<int> groups_in_forward_order() const;
  const std::shared_ptr<memory::Pool>& pool() const { return pool_; }
  const TierMemory& tiers() const { return tiers_; }
  const tiers::Residence& residence() const { return residence_; }
  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }
  ShardCounters& counters() { return counters_; }
  bool shares_host_copy() const { return context_.one_copy; }

 private:
  void await_updates();
  void check_no_scope(std::string_view what) const;
  void set_saved_tensors(const std::shared_ptr<nn::SavedTensorPacker>& packer);

  torch::nn::Module& module_;
  ShardOptions options_;
  ShardingDecision decision_;
  WrapPlan plan_;
  Mesh mesh_;
  Traffic traffic_;
  Draining draining_;
  ShardCounters counters_;
  NonFiniteWatch watch_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<memory::Pool> pool_;
  TierMemory tiers_;
  GroupContext context_;
  tiers::Residence residence_;
  Units units_;
  std::optional<RegisteredParameters> registered_;  // since start()
  Schedule schedule_;
  PassController passes_;
  UnitContext unit_context_;
  // One copy: slot 0 "entered the change", then the groups.
  std::shared_ptr<SharedCounters> shared_;
  uint64_t num_changes_ = 0;  // of the masters
  std::vector<UpdateStream*> streams_;
  std::vector<MasterReader*> readers_;
  bool is_stepped_by_torch_ = false;
  std::vector<ParamGroup*> updating_;  // gathers of updated parameters in flight
};

}  // namespace fullshard::engine
