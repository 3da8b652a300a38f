// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/engine.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/engine/assemble_units.h"
#include "fullshard/engine/passes/activation_packer.h"
#include "fullshard/engine/plan/model_casts.h"
#include "fullshard/engine/settle_options.h"

namespace fullshard::engine {
namespace {

std::vector<int64_t> unit_sizes(const Units& units) {
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

bool shares_one_copy(const Mesh& mesh, const ShardOptions& options) {
  return options.share_host_copy && mesh.shards().shares_memory() && mesh.num_shards() > 1;
}

// On the CPU what the ranks can look at together; on an accelerator its own allocator.
memory::Pool::Source memory_source(const Mesh& mesh) {
  const auto device = mesh.world().device();
  if (device.is_cpu()) {
    return
        [everyone = mesh.everyone()](int64_t bytes) { return everyone.allocate(bytes, at::kByte); };
  }
  return [options = at::TensorOptions().dtype(at::kByte).device(device)](int64_t bytes) {
    return at::empty({bytes}, options);
  };
}

// What runs beside computation and is worth an early start: an accelerator's streams, or a network.
Ahead fetches_ahead(const Mesh& mesh) {
  const bool runs_beside = !mesh.world().device().is_cpu() || mesh.gathers_between_hosts();
  return runs_beside ? Ahead::one_unit : Ahead::within_limits;
}

}  // namespace

Engine::Engine(torch::nn::Module& module, const World& world, const ShardOptions& given)
    : module_(module),
      options_(settle_options(given, module, world)),
      decision_(decide_sharding(options_.sharding, world.size(), world.ranks_per_host())),
      plan_(plan_units(module, options_.wrap, options_.ignored_modules,
                       options_.advises_on_units && gathers(decision_))),
      mesh_(world, decision_.num_shards),
      traffic_(mesh_, options_.traffic),
      ledger_(std::make_shared<Ledger>()),
      pool_(std::make_shared<memory::Pool>(
          memory_source(mesh_), ledger_, tiers::Tier::device,
          world.device().is_cpu() ? memory::Returned::kept : memory::Returned::freed)),
      tiers_(pool_, world.device(), world.rank(), options_.offload),
      context_{&mesh_,
               &traffic_,
               &draining_,
               pool_,
               &tiers_,
               &counters_,
               shares_one_copy(mesh_, options_),
               options_.contiguous_gradients},
      schedule_(schedule_options(options_, decision_), {}),
      passes_(units_, schedule_, context_, watch_),
      unit_context_{&passes_, &passes_.recomputes(), &counters_, &watch_} {
  passes_.set_has_values(prepare_module(module, plan_, mesh_, options_));
  watch_.watch_outputs(options_.watch_non_finite);
  units_ = assemble_units(plan_, options_, decision_.sharding, context_, unit_context_, residence_);
  for (const auto& note : residence_.notes) plan_.warnings.push_back(note);
  schedule_ =
      Schedule(schedule_options(options_, decision_), unit_sizes(units_), fetches_ahead(mesh_));
  shared_ = share_counters(units_, context_);
  if (!options_.offload_activations) return;
  set_saved_tensors(
      make_activation_packer(module, ledger_, options_.offload_activations_min_bytes));
}

Engine::~Engine() {
  passes_.settle();
  tiers_.finish_copies();
  const auto take_back = [](nn::UnitState& state, const nn::ForwardHooks* own) {
    if (state.hooks() == own) state.set_hooks(nullptr);
  };
  for (size_t i = 0; i < units_.size(); ++i) {
    take_back(*plan_.units[i].state, units_[i].get());
    for (auto* inner : plan_.units[i].inner) take_back(*inner, units_[i]->inner_hooks());
  }
  clear_forward_casts(plan_);
  if (options_.offload_activations) set_saved_tensors(nullptr);
}

void Engine::set_saved_tensors(const std::shared_ptr<nn::SavedTensorPacker>& packer) {
  for (const auto& unit : plan_.units) {
    unit.state->set_saved_tensors(packer);
    for (auto* inner : unit.inner) inner->set_saved_tensors(packer);
  }
}

void Engine::start() {
  passes_.start(weak_from_this());
  set_forward_casts(plan_, options_);
  for (size_t i = 0; i < units_.size(); ++i) {
    units_[i]->start(weak_from_this());
    plan_.units[i].state->set_hooks(units_[i].get());
    for (auto* inner : plan_.units[i].inner) inner->set_hooks(units_[i]->inner_hooks());
  }
  registered_.emplace(module_, plan_, options_.ignored_modules);
  passes_.look_at_registrations(&*registered_);
}

std::string Engine::why_not_repeatable() const {
  if (!mesh_.world().device().is_cuda()) return "the device is not a GPU";
  if (mesh_.world().size() > 1) return "ranks exchange parameters or gradients";
  if (options_.offload_activations) return "activations are offloaded";
  if (watch_.watches_parameter_gradients()) return "gradients are looked at as they come";
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) {
      if (group->is_released_at_rest()) return "parameters rest elsewhere";
      if (!group->trainable()) continue;
      if (!group->gradients().can_stay()) return "gradients rest elsewhere";
      if (group->spec().residence.states != tiers::Tier::device) {
        return "updates of states that rest elsewhere lie beside the next forward";
      }
    }
  }
  return {};
}

void Engine::note_captured_pass() {
  for (auto* group : trainable_groups()) group->gradients().keep_memory();
  watch_.keep_sights();
}

void Engine::forget_captured_passes() { watch_.forget_kept_sights(); }

std::vector<const void*> Engine::addresses() const {
  std::vector<const void*> found;
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) {
      for (const auto& parameter : group->parameters()) found.push_back(parameter.const_data_ptr());
      if (!group->trainable()) continue;
      for (const auto& memory : group->gradients().memory()) {
        found.push_back(memory.const_data_ptr());
      }
    }
  }
  return found;
}

void Engine::await_updates() {
  for (auto* group : trainable_groups()) group->await_update();
}

void Engine::settle_updates() {
  check_awake("reading masters or states");
  for (auto* stream : streams_) stream->settle();
  await_updates();
}

void Engine::settle_readers() {
  for (auto* reader : readers_) reader->settle();
}

std::vector<int> Engine::groups_in_forward_order() const {
  std::vector<std::vector<int>> by_unit;
  int index = 0;
  for (const auto& unit : units_) {
    by_unit.emplace_back();
    for (const auto& group : unit->groups()) {
      if (group->trainable()) by_unit.back().push_back(index++);
    }
  }
  std::vector<int> order;
  const auto add = [&](std::vector<int>& groups) {
    order.insert(order.end(), groups.begin(), groups.end());
    groups.clear();
  };
  for (const int unit : schedule_.forward_order()) add(by_unit[unit]);
  for (auto& groups : by_unit) add(groups);
  return order;
}

void Engine::begin_update() {
  begin_change("step()");
  ++counters_.steps;
}

void Engine::check_no_scope(std::string_view what) const {
  check(open_scopes == 0,
        "{} inside an open gather_full scope: close the scope first, its full parameters would be "
        "stale",
        what);
}

void Engine::come_to_rest(std::string_view what) {
  check_no_scope(what);
  if (phase() == Phase::backward) recover();
  release_all();
  settle_updates();
  settle_readers();
  draining_.settle();
  tiers_.leaving().release_all();
}

void Engine::leave_device(const memory::Relocation& relocation) {
  for (auto* stream : streams_) stream->give_windows_back();
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) group->leave_device(relocation);
  }
}

void Engine::return_to_device(const memory::Relocation& relocation) {
  for (const auto& unit : units_) {
    for (const auto& group : unit->groups()) group->return_to_device(relocation);
  }
  for (auto* stream : streams_) stream->take_windows();
}

void Engine::begin_change(std::string_view what) {
  check_awake(what);
  check_no_scope(what);
  if (phase() == Phase::backward) recover();
  release_all();
  await_updates();
  settle_readers();
  ++num_changes_;
  if (!shared_) return;
  shared_->publish(0, num_changes_);
  shared_->wait_for_all(0, num_changes_, what, "");
}

void Engine::finish_group_update(ParamGroup& group) {
  // Few enough in flight for every backend.
  constexpr size_t kMostInFlight = 8;
  group.begin_publish();
  updating_.push_back(&group);
  if (updating_.size() < kMostInFlight) return;
  updating_.front()->finish_update();
  updating_.erase(updating_.begin());
}

void Engine::finish_update() {
  for (auto* group : updating_) group->finish_update();
  updating_.clear();
  // Not at the end of backward: the norm would wait for them.
  tiers_.leaving().release_all();
  counters_.update_wait_s += tiers_.update_waits().take();
  counters_.fetch_wait_s += tiers_.fetch_waits().take();
}

}  // namespace fullshard::engine
