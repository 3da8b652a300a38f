// SPDX-License-Identifier: Apache-2.0
#include "fullshard/worker/estimate_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/base/standard_streams.h"
#include "fullshard/cli/flags/checkpoint_arguments.h"
#include "fullshard/planning/deepspeed_table.h"
#include "fullshard/planning/estimate_text.h"
#include "fullshard/simulation/sharding_factors.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/run_adapter.h"
#include "fullshard/worker/plan_inputs.h"
#include "fullshard/worker/simulate_run.h"

namespace fullshard::worker {
namespace {

planning::ModelSize size_for_table(const RunOptions& options, const cli::PlanningOptions& own) {
  planning::ModelSize size{own.total_params, own.largest_layer_params};
  if (!options.model.empty()) {
    const auto found = planning::size_of(*make_deferred_model(find_model(options.model)));
    if (size.total == 0) size.total = found.total;
    if (size.largest_layer == 0) size.largest_layer = found.largest_layer;
  }
  if (size.total == 0) {
    fail_as(ErrorKind::usage,
            "estimate: --deepspeed-table needs --model, or --total-params and "
            "--largest-layer-params");
  }
  if (size.largest_layer == 0) {
    fail_as(ErrorKind::usage,
            "--total-params: needs --largest-layer-params, from which stage 3 is computed; give "
            "both, or --model");
  }
  if (size.largest_layer > size.total) {
    fail_as(ErrorKind::usage,
            "--total-params: is {}, but the largest layer alone has {}; give those of all layers",
            size.total, size.largest_layer);
  }
  return size;
}

int print_deepspeed_table(const RunOptions& options, const cli::PlanningOptions& own, int ranks) {
  const auto size = size_for_table(options, own);
  const int gpus = own.gpus_per_node > 0 ? own.gpus_per_node : std::max(ranks / own.nodes, 1);
  const auto rows = planning::deepspeed_table(size, gpus, own.nodes);
  fmt::print("{}", options.json ? planning::deepspeed_json(rows) + "\n"
                                : planning::deepspeed_text(rows, size, gpus, own.nodes));
  return 0;
}

// The cluster whose GPUs and links are simulated, and its kernels and memory.
struct FactorsMachine {
  Cluster cluster;
  simulation::KernelTable kernels;
  int64_t memory_bytes;
};

FactorsMachine machine_of(const cli::PlanningOptions& own) {
  const std::string name = own.factors_cluster.empty() ? "h100" : own.factors_cluster;
  FactorsMachine machine{Cluster::load(name), simulation::KernelTable::of_preset(name), 0};
  machine.memory_bytes = own.device_memory.empty()
                             ? machine.cluster.gpu.memory_bytes
                             : cli::parse_file_size(own.device_memory, "--device-memory");
  return machine;
}

// A copy on one rank shards nothing; a plan that shards nothing has no factors.
void check_shards(const cli::RunArguments& arguments, const Plan& plan) {
  const ShardingPlan& sharding = plan.sharding;
  if (arguments.was_given("sharding-factor")) {
    fail_as(ErrorKind::usage,
            "--sharding-factors: tries every factor, and --sharding-factor names one; keep one of "
            "the flags");
  }
  if (sharding.stage.value ? **sharding.stage == 0 : *sharding.strategy == "NO_SHARD") {
    fail_as(ErrorKind::usage,
            "--sharding-factors: the plan shards nothing; choose --strategy FULL_SHARD, or "
            "--zero-stage 1 to 3");
  }
}

int print_sharding_factors(cli::RunArguments& arguments, int ranks) {
  if (arguments.options().device == "cpu") {
    base::say("warning: --device: is cpu, but --sharding-factors is for GPUs\n");
  }
  if (arguments.was_given("host-memory")) {
    base::say("warning: --host-memory: has no effect with --sharding-factors\n");
  }
  const ModelSource source = find_simulated_model(arguments.options().model);
  const FactorsMachine machine = machine_of(arguments.planning());
  const auto rows = simulation::simulate_factors(ranks, [&](int factor) {
    auto run = simulated_model(arguments, source, ranks);
    check_shards(arguments, run.plan);
    run.model = train::make_planned_model(source, arguments.options());
    run.plan.sharding.factor = {factor, Origin{}};
    run.options.cluster = machine.cluster;
    run.options.kernels = machine.kernels;
    return simulate(run.model, run.plan, run.options);
  });
  fmt::print("{}",
             arguments.options().json
                 ? simulation::sharding_factors_json(rows, machine.memory_bytes) + "\n"
                 : simulation::sharding_factors_text(rows, machine.cluster, machine.memory_bytes));
  base::flush_standard_output();
  return 0;
}

void warn_of_idle_flags(const cli::RunArguments& arguments) {
  if (arguments.was_given("cluster")) {
    base::say("warning: --cluster: has no effect without --sharding-factors\n");
  }
  for (const char* flag : {"total-params", "largest-layer-params", "gpus-per-node", "nodes"}) {
    if (!arguments.was_given(flag)) continue;
    base::say(fmt::format("warning: --{}: has no effect without --deepspeed-table\n", flag));
  }
}

}  // namespace

int run_estimate(cli::RunArguments& arguments) {
  const RunOptions& options = arguments.options();
  const auto& own = arguments.planning();
  auto& launch = arguments.launch();
  launch.take(arguments.plan(std::nullopt, {}, true).launch);
  launch.set_default_ranks(1);
  const int ranks = launch.world_size();
  if (own.deepspeed_table) return print_deepspeed_table(options, own, ranks);
  if (options.model.empty()) {
    fail_as(ErrorKind::usage, "estimate: --model is missing: a Hugging Face folder or a preset");
  }
  if (own.sharding_factors) return print_sharding_factors(arguments, ranks);
  warn_of_idle_flags(arguments);
  const ModelSource source = find_model(options.model);
  const auto model = train::make_planned_model(source, options);
  const Plan plan = arguments.plan(ranks, {.hidden_size = source.hidden_size()}, options.json);
  const at::Device device =
      arguments.device() == "cuda" ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const Estimate result = estimate(model, plan,
                                   {.ranks = ranks,
                                    .ranks_per_host = launch.ranks_per_host(),
                                    .device = device,
                                    .sequence_length = planned_sequence_length(options, *model),
                                    .target_length = options.target_length,
                                    .reduce_once = options.reduce_once,
                                    .label_smoothing = options.label_smoothing});
  const auto verdict =
      planning::judge(result, plan, limits_of(own, device, ranks, launch.ranks_per_host()));
  fmt::print("{}", options.json ? planning::estimate_json(result, verdict) + "\n"
                                : planning::estimate_text(result, verdict));
  base::flush_standard_output();
  return 0;
}

}  // namespace fullshard::worker
