// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/assemble_units.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <map>
#include <tuple>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/engine/plan/deferred_model.h"
#include "fullshard/engine/plan/group_residence.h"
#include "fullshard/engine/plan/model_casts.h"
#include "fullshard/engine/plan/parameter_checks.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/engine/value_agreement.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::engine {
namespace {

void switch_recompute(torch::nn::Module& module, WrapPlan& plan, const RecomputePolicy& policy) {
  const int recomputed = recompute_units(module, policy);
  if (recomputed > 0 || policy.is_none()) return;
  plan.warnings.emplace_back(
      "recompute: the policy chooses no module of this model, so all activations are kept; make "
      "units of the modules that repeat");
}

// What groups are asked for, unit by unit, and the groups made of it.
class GroupAssembly {
 public:
  GroupAssembly(const ShardOptions& options, const Sharding& sharding, const GroupContext& context)
      : options_(options), sharding_(sharding), context_(context) {}

  std::vector<std::vector<GroupSpec>> specs_of(const WrapPlan& plan) const {
    std::vector<std::vector<GroupSpec>> units;
    for (const auto& unit : plan.units) units.push_back(specs_in_order(unit));
    return units;
  }

  std::vector<std::unique_ptr<ParamGroup>> make(std::vector<GroupSpec> specs) const {
    std::vector<std::unique_ptr<ParamGroup>> groups;
    for (auto& spec : specs) {
      groups.push_back(
          std::make_unique<ParamGroup>(context_, std::move(spec), options_.sync_module_states));
    }
    return groups;
  }

 private:
  // The options under which tensors may share a group.
  using Key = std::tuple<at::ScalarType, at::ScalarType, bool, bool>;

  std::vector<GroupSpec> specs_in_order(const UnitPlan& unit) const {
    std::vector<GroupSpec> specs;
    for (auto& [key, spec] : specs_by_key(unit)) {
      if (options_.round_robin_gradients) spec.parameters = in_round_robin(spec.parameters);
      specs.push_back(std::move(spec));
    }
    return specs;
  }

  std::map<Key, GroupSpec> specs_by_key(const UnitPlan& unit) const {
    std::map<Key, GroupSpec> specs;
    for (const auto& parameter : unit.parameters) {
      check_device(parameter);
      const auto own = parameter.tensor.scalar_type();
      const bool is_float = at::isFloatingType(own);
      const auto compute = is_float ? options_.param_dtype.value_or(own) : own;
      const bool trainable = parameter.tensor.requires_grad();
      const bool persistent = parameter.tensor.numel() < options_.param_persistence_threshold;
      auto& spec = specs[{own, compute, trainable, persistent}];
      spec.unit = unit.path;
      spec.compute_dtype = compute;
      spec.master_dtype = trainable && is_float ? options_.master_dtype.value_or(own) : compute;
      spec.reduce_dtype = options_.reduce_dtype.value_or(compute);
      spec.gradient_dtype = options_.gradient_dtype.value_or(
          spec.master_dtype == at::kDouble ? at::kDouble : at::kFloat);
      spec.trainable = trainable;
      spec.in_halves = options_.master_in_halves.value_or(!device().is_cpu());
      spec.sharding = sharding_;
      spec.is_persistent = persistent;
      if (persistent) spec.sharding.parameters = Placement::replicated;
      spec.parameters.push_back(parameter);
    }
    return specs;
  }

  void check_device(const NamedParameter& parameter) const {
    const auto& tensor = parameter.tensor;
    check(tensor.device().is_cpu() || tensor.is_meta() || tensor.device() == device(),
          "parameter '{}' lies on {}, but the ranks of this world shard on {}; build the module "
          "there, on the CPU or deferred",
          parameter.names.front(), tensor.device().str(), device().str());
  }

  std::vector<NamedParameter> in_round_robin(const std::vector<NamedParameter>& parameters) const {
    std::vector<NamedParameter> reordered;
    const int num_shards = context_.mesh->num_shards();
    for (const int i : round_robin_order(static_cast<int>(parameters.size()), num_shards)) {
      reordered.push_back(parameters[i]);
    }
    return reordered;
  }

  at::Device device() const { return context_.mesh->world().device(); }

  const ShardOptions& options_;
  const Sharding& sharding_;
  const GroupContext& context_;
};

void take_rank_0_buffers(const UnitPlan& unit, const Communicator& everyone) {
  at::NoGradGuard no_grad;
  for (const auto& buffer : unit.buffers) {
    auto values = buffer.tensor.contiguous();
    everyone.broadcast(values.view({-1}), 0, buffer.name).wait();
    if (!values.is_same(buffer.tensor)) buffer.tensor.copy_(values);
  }
}

// Taking host memory or a file for a large model takes its seconds: rank 0 says how far it is.
class SetUpProgress {
 public:
  SetUpProgress(const GroupContext& groups, size_t num_units)
      : ledger_(groups.pool->ledger()),
        num_units_(num_units),
        is_told_(groups.mesh->world().rank() == 0 && !tensor::is_pretended()) {}

  void has(size_t num_done) {
    const auto now = std::chrono::steady_clock::now();
    if (!is_told_ || num_done == num_units_ || now - told_ < std::chrono::seconds(2)) return;
    told_ = now;
    const auto elsewhere =
        ledger_.held_total(tiers::Tier::host) + ledger_.held_total(tiers::Tier::disk);
    spdlog::info("sharding: {} of {} units are set up, {:.1f} GiB of them off the device", num_done,
                 num_units_, static_cast<double>(elsewhere) / kGiB);
  }

 private:
  const Ledger& ledger_;
  const size_t num_units_;
  const bool is_told_;
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

}  // namespace

bool prepare_module(torch::nn::Module& module, WrapPlan& plan, const Mesh& mesh,
                    const ShardOptions& options) {
  const auto& world = mesh.world();
  check_dtypes(options, world.device());
  check_parameters(plan);
  switch_recompute(module, plan, options.recompute);
  check_ranks_agree(mesh.everyone(), plan, options.sync_module_states);
  if (!options.sync_module_states) check_values_agree(mesh.everyone(), plan);
  const bool has_values = options.sync_module_states || first_deferred(plan).empty();
  materialise_unsharded(plan, options.sync_module_states && world.rank() != 0, world.device());
  move_buffers(plan, world.device());
  if (options.buffer_dtype) cast_buffers(module, plan, *options.buffer_dtype);
  return has_values;
}

Units assemble_units(const WrapPlan& plan, const ShardOptions& options, const Sharding& sharding,
                     const GroupContext& groups, const UnitContext& units,
                     tiers::Residence& residence) {
  const GroupAssembly assembly(options, sharding, groups);
  auto specs = assembly.specs_of(plan);
  residence =
      place_groups(options, groups.mesh->num_shards(), groups.mesh->world().device(), specs);
  Units assembled;
  SetUpProgress progress(groups, plan.units.size());
  for (const auto& unit : plan.units) {
    if (options.sync_module_states) take_rank_0_buffers(unit, groups.mesh->everyone());
    const int index = static_cast<int>(assembled.size());
    assembled.push_back(
        std::make_unique<UnitRuntime>(units, index, unit, assembly.make(std::move(specs[index]))));
    progress.has(assembled.size());
  }
  for (size_t i = 0; i < assembled.size(); ++i) {
    for (const int lender : plan.units[i].lenders) assembled[i]->add_lender(*assembled[lender]);
    if (plan.units[i].parent >= 0) assembled[plan.units[i].parent]->note_nested();
  }
  return assembled;
}

std::shared_ptr<SharedCounters> share_counters(const Units& units, const GroupContext& groups) {
  if (!groups.one_copy) return nullptr;
  int num_slots = 1;
  for (const auto& unit : units) num_slots += static_cast<int>(unit->groups().size());
  auto counters = groups.mesh->shards().make_counters(num_slots);
  int slot = 1;
  for (const auto& unit : units) {
    for (const auto& group : unit->groups()) group->use_counters(counters, slot++);
  }
  return counters;
}

}  // namespace fullshard::engine
