// The run time of one sharded model: its units, and the passes over them. Calls come from one
// thread at a time: the module's in forward, autograd's in backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/comm/mesh.h"
#include "fullshard/memory/pool.h"
#include "fullshard/nn/saved_tensor_hooks.h"
#include "fullshard/shard/backward_pass.h"
#include "fullshard/shard/forward_log.h"
#include "fullshard/shard/late_vote.h"
#include "fullshard/shard/non_finite_watch.h"
#include "fullshard/shard/options.h"
#include "fullshard/shard/reduce_queue.h"
#include "fullshard/shard/unit_runtime.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn

namespace fullshard {

enum class Phase { resting, backward };

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Collective. Shards the module in place; it must outlive the engine (the facade holds both).
  Engine(torch::nn::Module& module, const World& world, const ShardOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Registers the hooks; needs the shared_ptr, so it is not part of the constructor.
  void start();

  // From units, in forward.
  void forward_starts(UnitRuntime& unit);
  void forward_ends(UnitRuntime& unit);
  void prefetch_forward(const UnitRuntime& unit);

  // From units, in backward.
  void ensure_backward();
  void backward_begins(UnitRuntime& unit);
  void gradient_arrived();
  void unit_is_ready(UnitRuntime& unit);

  // Recomputed calls, innermost last. A call recorded inside a replay belongs to that replay too.
  void push_recompute(RecomputePass pass, uint64_t id);
  void pop_recompute() noexcept;
  bool is_recording() const {
    return !recomputes_.empty() && recomputes_.back().pass == RecomputePass::record;
  }
  bool is_replaying() const { return num_replays_ > 0; }
  uint64_t recompute_id() const { return recomputes_.back().id; }

  // After a backward that threw: waits for what is in flight, drops gradients, releases units.
  void recover();
  // An error when recover() had to drop gradients of earlier, good backwards too.
  void check_gradients_kept();
  void drop_gradients();
  // The next backward sums squares while it reduces.
  void want_squares() { context_.takes_squares = true; }
  // Nothing gathered, nothing in flight.
  void release_all();

  // Marks around a change of the masters, by the optimizer or, as `what`, by somebody else.
  void begin_update();
  void begin_change(std::string_view what);
  void finish_group_update(ParamGroup& group);
  void finish_update();

  Phase phase() const { return phase_; }
  // A forward that a backward will follow, as far as one can tell: a recomputed call runs without
  // gradients at first.
  bool expects_backward() const;
  bool reduces() const { return reduces_; }
  void set_reduces(bool reduces) {
    reduces_ = reduces;
    context_.defers_reduction = !reduces;
  }
  // Off: a reduction sends nothing and leaves every rank its own gradient.
  void set_over_ranks(bool on) { context_.over_ranks = on; }
  bool reduces_over_ranks() const { return context_.over_ranks; }
  // False for a deferred model until somebody has given it values; a forward says so then.
  bool has_values() const { return has_values_; }
  void set_has_values(bool has) { has_values_ = has; }
  NonFiniteWatch& watch() { return watch_; }
  const NonFiniteWatch& watch() const { return watch_; }
  int open_scopes = 0;               // of gather_full
  bool is_stepped_by_torch = false;  // by an optimizer whose states nobody here holds

  const Mesh& mesh() const { return mesh_; }
  const Schedule& schedule() const { return schedule_; }
  Schedule& schedule() { return schedule_; }
  const ShardOptions& options() const { return options_; }
  const ShardingDecision& decision() const { return decision_; }
  const WrapPlan& plan() const { return plan_; }
  const std::vector<std::unique_ptr<UnitRuntime>>& units() const { return units_; }
  std::vector<ParamGroup*> trainable_groups() const;  // units in order of the module tree
  const std::shared_ptr<Pool>& pool() const { return pool_; }
  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }
  ShardCounters& counters() { return counters_; }
  bool shares_host_copy() const { return context_.one_copy; }

 private:
  struct Recompute {
    RecomputePass pass;
    uint64_t id;
  };

  void settle() noexcept;
  void make_units();
  std::vector<std::unique_ptr<ParamGroup>> make_groups(const UnitPlan& unit);
  void make_counters();
  void switch_recompute(torch::nn::Module& module);
  void set_saved_tensors(const std::shared_ptr<SavedTensorPacker>& packer);
  void synchronise_buffers(const UnitPlan& unit);
  int gathers_in_flight() const;
  bool has_gradients() const;
  bool is_stale() const;
  void open_pass();
  void pass_over(UnitRuntime& unit);
  void end_unit(UnitRuntime& unit);
  void flush_reductions();
  void reduce_late();
  void finish_backward();
  void poison_gradients();
  void clear_gradients();

  ShardOptions options_;
  ShardingDecision decision_;
  WrapPlan plan_;
  Mesh mesh_;
  Traffic traffic_;
  Draining draining_;
  ShardCounters counters_;
  NonFiniteWatch watch_;
  std::shared_ptr<Ledger> ledger_;
  std::shared_ptr<Pool> pool_;
  GroupContext context_;
  std::vector<std::unique_ptr<UnitRuntime>> units_;
  Schedule schedule_;
  LateVote late_vote_;
  ForwardLog log_;
  BackwardPass pass_;
  ReduceQueue reductions_;    // or their first stage
  ReduceQueue replica_sums_;  // the second one
  std::vector<Recompute> recomputes_;
  int num_replays_ = 0;  // of them
  std::shared_ptr<SharedCounters>
      shared_;                          // one copy: slot 0 "entered the change", then the groups
  uint64_t num_changes_ = 0;            // of the masters
  std::vector<ParamGroup*> updating_;   // gathers of updated parameters in flight
  std::vector<at::Tensor> parameters_;  // trainable ones of the module, and a poison for each
  std::vector<at::Tensor> poisons_;

  Phase phase_ = Phase::resting;
  bool has_values_ = true;
  bool reduces_ = true;
  bool any_gradient_ = false;
  bool had_gradients_ = false;         // before the backward that runs now
  bool lost_gradients_ = false;        // with one that failed
  bool wants_some_gradients_ = false;  // autograd::grad, or backward(inputs)
  // Dies with autograd's task, whether that ends well or not.
  std::weak_ptr<int> backward_task_;
};

}  // namespace fullshard
