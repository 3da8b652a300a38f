// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/flops_profile.h"

#include <map>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/plan/unit_name.h"
#include "fullshard/simulation/simulate.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/worker/plan_inputs.h"

namespace fullshard::worker {
namespace {

// Offload and recomputation do not matter here.
Plan counted_plan(const Plan& plan) {
  Plan counted = plan;
  counted.offload = {};
  counted.recompute = {};
  return counted;
}

struct CountedPass {
  size_t unit = 0;
  double train::UnitFlops::*pass = &train::UnitFlops::forward;
};

// By the names that a schedule gives to moments.
std::map<std::string, CountedPass> passes_of(const std::vector<train::UnitFlops>& units) {
  std::map<std::string, CountedPass> passes;
  for (size_t i = 0; i < units.size(); ++i) {
    const std::string name = engine::describe_unit(units[i].path);
    passes["forward of " + name] = {i, &train::UnitFlops::forward};
    passes["backward of " + name] = {i, &train::UnitFlops::backward};
  }
  return passes;
}

// Examples have the greatest length that `train` makes.
void count_pretended(const RunOptions& options, const ModelSource& source, const Plan& plan,
                     train::FlopsProfile& profile) {
  const auto model = train::make_planned_model(source, options);
  SimulateOptions simulated;
  simulated.ranks = profile.world_size;
  simulated.cluster.gpus_per_host = profile.world_size;
  simulated.sequence_length = planned_sequence_length(options, *model);
  simulated.target_length = options.target_length;
  const auto recorded =
      simulation::record_run(model, counted_plan(plan), simulated, tensor::RealGpus::used);
  const auto& schedule = recorded.schedule;
  const auto passes = passes_of(profile.units);
  for (size_t i = schedule.last_step; i < schedule.tasks.size(); ++i) {
    const auto& task = schedule.tasks[i];
    if (task.kind != simulation::TaskKind::kernel || task.op.flops == 0) continue;
    const auto found = passes.find(task.moment);
    const CountedPass pass = found == passes.end() ? CountedPass{} : found->second;
    profile.units[pass.unit].*pass.pass +=
        task.op.flops / static_cast<double>(profile.accumulation);
  }
  for (train::UnitFlops& unit : profile.units) {
    if (profile.recomputes) unit.backward += unit.forward;
  }
}

}  // namespace

FlopsProfiler::FlopsProfiler(const RunOptions& options, const ModelSource& source, const Plan& plan,
                             const ShardedModel& sharded)
    : counts_operators_(sharded.mesh().world().device().is_cpu()) {
  const int ranks = sharded.mesh().world().size();
  const BatchSizes batch = plan.batch_sizes(ranks);
  profile_ = {.world_size = ranks,
              .micro_batch = batch.micro_batch,
              .accumulation = batch.accumulation,
              .recomputes = *plan.recompute.enabled};
  for (const auto& unit : engine::EngineAccess::of(sharded).plan().units) {
    profile_.units.push_back(
        {.path = unit.path, .class_name = unit.class_name, .parameters = unit.numel()});
  }
  if (!counts_operators_) count_pretended(options, source, plan, profile_);
}

train::FlopsProfile FlopsProfiler::profile_of(const StepRecord& step) const {
  train::FlopsProfile profile = profile_;
  if (counts_operators_) operators_.add_to(profile);
  profile.step = step.step;
  profile.forward_s = step.phases->forward_s;
  profile.backward_s = step.phases->backward_s;
  profile.optimizer_s = step.phases->optimizer_s;
  profile.step_s = step.step_s;
  return profile;
}

}  // namespace fullshard::worker
