// SPDX-License-Identifier: Apache-2.0
#include "tests/planning/measured_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/new_values.h"
#include "fullshard/models/lora/add_lora.h"
#include "fullshard/models/model_folder.h"
#include "fullshard/nn/deferred.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/train/apply_plan.h"
#include "tests/planning/counting_allocator.h"

namespace fullshard::testing {
namespace {

std::shared_ptr<LanguageModel> deferred_model(const Case& run) {
  const DeferredScope scope;
  auto model = make_model(run.config, "test", {});
  if (run.lora_rank > 0) {
    add_lora(*model, {.rank = run.lora_rank, .dropout = 0.1, .target_modules = {"all-linear"}});
  }
  if (run.base_in_int8) quantise_base(*model);
  return model;
}

// What the ranks of a host look at together is in nobody's allocator and in no pool: one shard of
// it is a rank's.
int64_t shared_bytes(const ShardedModel& sharded, const memory::Pool& pool) {
  if (!sharded.shares_host_copy()) return 0;
  return sharded.ledger().held_total() - pool.lent_bytes();
}

Measured peak_of_rank(const Case& run, const World& world) {
  const auto watch = std::make_shared<TotalWatch>();
  const tensor::WatchScope watched(watch);
  const auto plan = plan_of(run);
  const auto model = deferred_model(run);
  ShardOptions options = shard_options_of(plan);
  options.advises_on_units = false;
  ShardedModel sharded(model, world, options);
  auto& engine = engine::EngineAccess::of(sharded);
  engine::replace_values(engine, "test", [] {});
  const auto optimizer = make_optimizer(sharded, plan);
  Stepper stepper(sharded, *optimizer, stepper_options_of(plan, world.size()));
  model->train();
  for (int step = 0; step < 3; ++step) {
    stepper.backward(
        model->forward(planning::planned_inputs(*model, run.micro_batch, options_of(run))).loss);
    stepper.step();
  }
  // Over shm the pool's memory is not libtorch's.
  const int64_t pooled = world.size() > 1 ? engine.pool()->reserved_bytes() : 0;
  const auto& ledger = sharded.ledger();
  return {watch->peak() + pooled + shared_bytes(sharded, *engine.pool()) +
              ledger.held_total(tiers::Tier::host),
          ledger.peak_total(tiers::Tier::disk)};
}

}  // namespace

void TotalWatch::change(at::Device, tensor::AllocationKind, int64_t bytes) {
  const int64_t now = held_ += bytes;
  if (now > peak_) peak_ = now;
}

Plan plan_of(const Case& run) {
  PlanOptions options{.flags = {{"--zero-stage", fmt::format("{}", run.stage)},
                                {"--micro-batch", fmt::format("{}", run.micro_batch)},
                                {"--precision", run.precision}},
                      .ranks = run.ranks,
                      .device = "cpu"};
  if (!run.offload.empty()) options.flags.push_back({"--offload", run.offload});
  if (run.recompute) options.flags.push_back({"--recompute", "true"});
  if (run.contiguous_gradients) return Plan::from_words("", "", options);
  return Plan::parse(R"({"zero_optimization": {"contiguous_gradients": false}})", "test", options);
}

EstimateOptions options_of(const Case& run) {
  return {.ranks = run.ranks, .sequence_length = run.sequence_length};
}

Estimate planned(const Case& run) {
  return estimate(deferred_model(run), plan_of(run), options_of(run));
}

Measured measured(const Case& run) {
  install_counting_allocator();
  if (run.ranks == 1) return peak_of_rank(run, World::single());
  std::mutex mutex;
  Measured most;
  run_ranks({.ranks = run.ranks}, [&](const World& world) {
    const Measured own = peak_of_rank(run, world);
    const std::lock_guard lock(mutex);
    most.memory_bytes = std::max(most.memory_bytes, own.memory_bytes);
    most.disk_bytes = std::max(most.disk_bytes, own.disk_bytes);
  });
  return most;
}

}  // namespace fullshard::testing
