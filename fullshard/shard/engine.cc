#include "fullshard/shard/engine.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "fullshard/base/error.h"
#include "fullshard/shard/activation_store.h"
#include "fullshard/shard/agreement.h"
#include "fullshard/shard/deferred_model.h"
#include "fullshard/shard/model_casts.h"
#include "fullshard/shard/unit_name.h"
#include "fullshard/shard/value_agreement.h"
#include "fullshard/tensor/storage.h"

namespace fullshard {
namespace {

constexpr const char* kPoison =
    "the gradients of a sharded model live in its shards, not in the module's parameters: step "
    "with fullshard::AdamW(sharded, …) or another optimizer over sharded.pieces(), and clip with "
    "sharded.clip_grad_norm(…)";

std::vector<int64_t> unit_sizes(const std::vector<std::unique_ptr<UnitRuntime>>& units) {
  std::vector<int64_t> sizes;
  for (const auto& unit : units) sizes.push_back(unit->numel());
  return sizes;
}

ScheduleOptions schedule_options(const ShardOptions& options, const ShardingDecision& decision) {
  auto schedule = options.schedule;
  schedule.reshard_after_forward = decision.reshard_after_forward;
  return schedule;
}

bool gathers(const ShardingDecision& decision) {
  return decision.num_shards > 1 && decision.sharding.parameters == Placement::sharded;
}

// On the CPU what the ranks can look at together; on an accelerator its own allocator.
Pool::Source memory_source(const Mesh& mesh) {
  const auto device = mesh.world().device();
  if (device.is_cpu()) {
    return
        [everyone = mesh.everyone()](int64_t bytes) { return everyone.allocate(bytes, at::kByte); };
  }
  return [options = at::TensorOptions().dtype(at::kByte).device(device)](int64_t bytes) {
    return at::empty({bytes}, options);
  };
}

// The options under which tensors may share a group.
using GroupKey = std::tuple<at::ScalarType, at::ScalarType, bool, bool>;

}  // namespace

Engine::Engine(torch::nn::Module& module, const World& world, const ShardOptions& options)
    : options_(options),
      decision_(decide_sharding(options.sharding, world.size(), world.ranks_per_host())),
      plan_(plan_units(module, options.wrap, options.ignored_modules,
                       options.advises_on_units && gathers(decision_))),
      mesh_(world, decision_.num_shards),
      traffic_(mesh_, options.traffic),
      ledger_(std::make_shared<Ledger>()),
      pool_(std::make_shared<Pool>(memory_source(mesh_), ledger_, Tier::device,
                                   world.device().is_cpu() ? Returned::kept : Returned::freed)),
      schedule_(schedule_options(options, decision_), {}),
      late_vote_(mesh_.everyone()),
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
                     {}}) {
  check_dtypes(options, world.device());
  switch_recompute(module);
  check_ranks_agree(mesh_.everyone(), plan_, options.sync_module_states);
  if (!options.sync_module_states) check_values_agree(mesh_.everyone(), plan_);
  has_values_ = options.sync_module_states || first_deferred(plan_).empty();
  materialise_unsharded(plan_, options.sync_module_states && world.rank() != 0, world.device());
  move_buffers(plan_, world.device());
  context_ = {&mesh_,
              &traffic_,
              &draining_,
              pool_,
              &counters_,
              options.share_host_copy && mesh_.shards().shares_memory() && mesh_.num_shards() > 1,
              options.contiguous_gradients};
  watch_.watch_outputs(options.watch_non_finite);
  if (options.buffer_dtype) cast_buffers(module, plan_, *options.buffer_dtype);
  make_units();
  schedule_ = Schedule(schedule_options(options, decision_), unit_sizes(units_),
                       world.device().is_cpu() ? Ahead::within_limits : Ahead::one_unit);
  make_counters();
  if (!options.offload_activations) return;
  set_saved_tensors(make_activation_packer(module, ledger_, options.offload_activations_min_bytes));
}

Engine::~Engine() {
  settle();
  for (const auto& unit : plan_.units) {
    unit.state->set_hooks(nullptr);
    for (auto* inner : unit.inner) inner->set_hooks(nullptr);
  }
  clear_forward_casts(plan_);
  if (options_.offload_activations) set_saved_tensors(nullptr);
}

// After a failed pass collectives may be in flight: memory that one of them still writes may not be
// given to somebody else.
void Engine::settle() noexcept {
  const auto attempt = [](const auto& wait) {
    try {
      wait();
    } catch (const std::exception&) {
      // A rank is gone, and with it the call; whoever met that first has told so.
    }
  };
  attempt([&] { reductions_.flush(); });
  attempt([&] { replica_sums_.flush(); });
  attempt([&] { draining_.settle(); });
  for (const auto& unit : units_) attempt([&] { unit->settle(); });
}

void Engine::switch_recompute(torch::nn::Module& module) {
  const int recomputed = recompute_units(module, options_.recompute);
  if (recomputed > 0 || options_.recompute.is_none()) return;
  plan_.warnings.emplace_back(
      "recompute: the policy chooses no module of this model, so all activations are kept; make "
      "units of the modules that repeat");
}

void Engine::set_saved_tensors(const std::shared_ptr<SavedTensorPacker>& packer) {
  for (const auto& unit : plan_.units) {
    unit.state->set_saved_tensors(packer);
    for (auto* inner : unit.inner) inner->set_saved_tensors(packer);
  }
}

void Engine::make_units() {
  for (const auto& plan : plan_.units) {
    if (options_.sync_module_states) synchronise_buffers(plan);
    const int index = static_cast<int>(units_.size());
    units_.push_back(std::make_unique<UnitRuntime>(*this, index, plan, make_groups(plan)));
  }
  for (size_t i = 0; i < units_.size(); ++i) {
    for (const int lender : plan_.units[i].lenders) units_[i]->add_lender(*units_[lender]);
  }
  for (const auto* group : trainable_groups()) {
    for (const auto& parameter : group->parameters()) {
      parameters_.push_back(parameter);
      poisons_.push_back(
          throwing_tensor(parameter.sizes(), parameter.scalar_type(), kPoison, parameter.device()));
    }
  }
}

std::vector<std::unique_ptr<ParamGroup>> Engine::make_groups(const UnitPlan& unit) {
  std::map<GroupKey, GroupSpec> specs;
  const auto device = mesh_.world().device();
  for (const auto& parameter : unit.parameters) {
    const auto& tensor = parameter.tensor;
    check(tensor.device().is_cpu() || tensor.is_meta() || tensor.device() == device,
          "parameter '{}' lies on {}, but the ranks of this world shard on {}; build the module "
          "there, on the CPU or deferred",
          parameter.names.front(), tensor.device().str(), device.str());
    const auto own = tensor.scalar_type();
    const bool is_float = at::isFloatingType(own);
    const auto compute = is_float ? options_.param_dtype.value_or(own) : own;
    const bool trainable = tensor.requires_grad();
    const bool persistent = tensor.numel() < options_.param_persistence_threshold;
    auto& spec = specs[{own, compute, trainable, persistent}];
    spec.unit = unit.path;
    spec.compute_dtype = compute;
    spec.master_dtype = trainable && is_float ? options_.master_dtype.value_or(own) : compute;
    spec.reduce_dtype = options_.reduce_dtype.value_or(compute);
    spec.gradient_dtype = options_.gradient_dtype.value_or(
        spec.master_dtype == at::kDouble ? at::kDouble : at::kFloat);
    spec.trainable = trainable;
    spec.in_halves = options_.master_in_halves.value_or(!device.is_cpu());
    spec.sharding = decision_.sharding;
    if (persistent) spec.sharding.parameters = Placement::replicated;
    spec.parameters.push_back(parameter);
  }
  std::vector<std::unique_ptr<ParamGroup>> groups;
  for (auto& [key, spec] : specs) {
    if (options_.round_robin_gradients) {
      std::vector<NamedParameter> reordered;
      for (const int i :
           round_robin_order(static_cast<int>(spec.parameters.size()), decision_.num_shards)) {
        reordered.push_back(std::move(spec.parameters[i]));
      }
      spec.parameters = std::move(reordered);
    }
    groups.push_back(
        std::make_unique<ParamGroup>(context_, std::move(spec), options_.sync_module_states));
  }
  return groups;
}

void Engine::synchronise_buffers(const UnitPlan& unit) {
  at::NoGradGuard no_grad;
  auto everyone = mesh_.everyone();
  for (const auto& buffer : unit.buffers) {
    auto values = buffer.tensor.contiguous();
    everyone.broadcast(values.view({-1}), 0, buffer.name).wait();
    if (!values.is_same(buffer.tensor)) buffer.tensor.copy_(values);
  }
}

void Engine::make_counters() {
  if (!context_.one_copy) return;
  int slots = 1;
  for (const auto& unit : units_) slots += static_cast<int>(unit->groups().size());
  auto shards = mesh_.shards();
  shared_ = shards.make_counters(slots);
  int slot = 1;
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) group->use_counters(shared_, slot++);
  }
}

void Engine::start() {
  set_forward_casts(plan_, options_);
  for (size_t i = 0; i < units_.size(); ++i) {
    plan_.units[i].state->set_hooks(units_[i].get());
    for (auto* inner : plan_.units[i].inner) inner->set_hooks(units_[i]->inner_hooks());
  }
}

std::vector<ParamGroup*> Engine::trainable_groups() const {
  std::vector<ParamGroup*> groups;
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) {
      if (group->trainable()) groups.push_back(group.get());
    }
  }
  return groups;
}

void Engine::forward_starts(UnitRuntime& unit) {
  if (!has_values_) [[unlikely]] {
    fail(
        "forward of {}: the model was built deferred and its parameters have no values yet; call "
        "load_weights or initialise_weights first, or write all of them in a gather_full scope "
        "with write_back",
        describe_unit(unit.path()));
  }
  if (is_stale()) recover();
  if (!expects_backward()) return;
  schedule_.note_start(unit.index());
  log_.start(unit.index());
}

void Engine::forward_ends(UnitRuntime& unit) {
  if (!expects_backward()) return;
  schedule_.note_end(unit.index());
  log_.end(unit.index());
}

bool Engine::expects_backward() const {
  return !is_replaying() && (at::GradMode::is_enabled() || is_recording());
}

void Engine::push_recompute(RecomputePass pass, uint64_t id) {
  recomputes_.push_back({pass, id});
  num_replays_ += pass == RecomputePass::replay;
  if (!is_replaying()) log_.enter_recomputed();
}

void Engine::pop_recompute() noexcept {
  if (recomputes_.empty()) return;  // recover() came in between
  if (!is_replaying()) log_.leave_recomputed();
  num_replays_ -= recomputes_.back().pass == RecomputePass::replay;
  recomputes_.pop_back();
}

int Engine::gathers_in_flight() const {
  int count = 0;
  for (const auto& unit : units_) count += unit->is_arriving();
  return count;
}

void Engine::prefetch_forward(const UnitRuntime& unit) {
  if (!schedule_.prefetches_forward()) return;
  for (const int index : schedule_.next_in_forward(unit.index())) {
    auto& next = *units_[index];
    if (next.numel() == 0 || next.is_live() || next.is_arriving()) continue;
    if (!schedule_.may_prefetch(index, gathers_in_flight(), counters_.live_numel,
                                counters_.ahead_numel)) {
      return;
    }
    next.begin_unshard();
  }
}

void Engine::backward_begins(UnitRuntime& unit) {
  ensure_backward();
  pass_.begin(unit.index());
  unit.unshard();
  pass_.gather_ahead(unit.index());
}

// Other ranks may gather it in this backward, and this one has no use for it. Where ranks look at
// one copy, nobody waits for those that do not look.
void Engine::pass_over(UnitRuntime& unit) {
  if (unit.numel() == 0 || unit.is_live() || unit.is_arriving() || shares_host_copy()) return;
  unit.unshard();
}

// Its slots that got no gradient count as zeros.
void Engine::end_unit(UnitRuntime& unit) {
  unit.end_backward();
  if (!reduces_ || wants_some_gradients_ || !unit.is_trainable()) return;
  reductions_.issue(unit.index());
  counters_.overlapped += reductions_.in_flight() > 0;
}

bool Engine::is_stale() const { return phase_ == Phase::backward && backward_task_.expired(); }

void Engine::ensure_backward() {
  if (is_stale()) recover();
  if (phase_ == Phase::backward) return;
  phase_ = Phase::backward;
  any_gradient_ = false;
  had_gradients_ = has_gradients();
  const auto* wanted = torch::autograd::get_current_graph_task_exec_info();
  wants_some_gradients_ = wanted != nullptr && !wanted->empty();
  clear_gradients();
  open_pass();
  std::weak_ptr<Engine> weak = weak_from_this();
  auto task = std::make_shared<int>();
  backward_task_ = task;
  torch::autograd::Engine::get_default_engine().queue_callback([weak, task] {
    if (auto engine = weak.lock()) engine->finish_backward();
  });
}

// Everything here is the same on all ranks whose forwards called the same units.
void Engine::open_pass() {
  std::vector<bool> is_live;
  for (const auto& unit : units_) is_live.push_back(unit->is_live() || unit->is_arriving());
  auto steps = reverse_order(log_.entries());
  // A frozen unit takes part where gradients pass through it.
  std::erase_if(steps, [this](const BackwardStep& step) {
    const auto& unit = *units_[step.unit];
    return !unit.is_trainable() && !unit.ran_with_gradients();
  });
  plan_gathers_ahead(steps, schedule_, is_live);
  pass_.open(std::move(steps), static_cast<int>(units_.size()));
  reductions_.limit(schedule_.max_reductions_in_flight());
  replica_sums_.limit(schedule_.max_reductions_in_flight());
}

// Peers wait for this rank's part of their sums: what can be done for them is done now and then.
void Engine::gradient_arrived() {
  any_gradient_ = true;
  reductions_.advance();
}

void Engine::unit_is_ready(UnitRuntime& unit) { pass_.mark_ready(unit.index()); }

void Engine::finish_backward() {
  at::NoGradGuard no_grad;
  const bool only_asked = wants_some_gradients_ && !any_gradient_;  // autograd::grad
  pass_.finish();
  if (reduces_) {
    flush_reductions();
    reduce_late();
    draining_.settle();
  }
  for (const auto& unit : units_) unit->finish_pass();
  log_.start_over();
  if (!only_asked) poison_gradients();
  schedule_.seal();
  phase_ = Phase::resting;
  backward_task_.reset();
}

// Gradients that came after their unit's turn, or in a backward that asked for some only. Which
// units have any may differ between ranks, so they ask each other.
void Engine::reduce_late() {
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

void Engine::flush_reductions() {
  reductions_.flush();
  replica_sums_.flush();
}

void Engine::clear_gradients() {
  for (auto& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

void Engine::poison_gradients() {
  for (size_t i = 0; i < parameters_.size(); ++i) parameters_[i].mutable_grad() = poisons_[i];
}

void Engine::recover() {
  at::NoGradGuard no_grad;
  pass_.open({}, static_cast<int>(units_.size()));
  flush_reductions();
  draining_.settle();
  recomputes_.clear();
  num_replays_ = 0;
  log_.clear();
  for (const auto& unit : units_) unit->abandon_pass();
  // What the failed backward had reduced is mixed with what was there before.
  const bool loses = had_gradients_;
  drop_gradients();
  lost_gradients_ = loses;
  clear_gradients();
  phase_ = Phase::resting;
  backward_task_.reset();
}

bool Engine::has_gradients() const {
  const auto groups = trainable_groups();
  return std::any_of(groups.begin(), groups.end(), [](const ParamGroup* group) {
    return group->gradients().is_reduced() || group->gradients().has_unreduced();
  });
}

void Engine::drop_gradients() {
  for (auto* group : trainable_groups()) group->gradients().drop();
  watch_.start_over();
  lost_gradients_ = false;
}

void Engine::check_gradients_kept() {
  if (is_stale()) recover();
  check(!lost_gradients_,
        "a backward failed after earlier micro-batches had left gradients, and theirs were dropped "
        "with its own; call zero_grad() and start the accumulation again");
}

void Engine::release_all() {
  for (const auto& unit : units_) unit->reshard();
}

void Engine::begin_update() {
  begin_change("step()");
  ++counters_.steps;
}

void Engine::begin_change(std::string_view what) {
  check(open_scopes == 0,
        "{} inside an open gather_full scope: close the scope first, its full parameters would be "
        "stale",
        what);
  if (phase_ == Phase::backward) recover();
  release_all();
  ++num_changes_;
  if (!shared_) return;
  shared_->publish(0, num_changes_);
  shared_->wait_for_all(0, num_changes_, what, "");
}

void Engine::finish_group_update(ParamGroup& group) {
  // Few enough in flight for every backend.
  constexpr size_t kMostInFlight = 8;
  group.begin_finish_update();
  updating_.push_back(&group);
  if (updating_.size() < kMostInFlight) return;
  updating_.front()->finish_update();
  updating_.erase(updating_.begin());
}

void Engine::finish_update() {
  for (auto* group : updating_) group->finish_update();
  updating_.clear();
}

}  // namespace fullshard
