// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/simulate.h"

#include <algorithm>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/fake_world.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/simulation/kernel_cost.h"
#include "fullshard/simulation/link_cost.h"
#include "fullshard/train/apply_plan.h"

namespace fullshard::simulation {
namespace {

// The first observes the order of units; the last two are what goes on for ever.
constexpr int kRecordedSteps = 3;

void check_ranks(const SimulateOptions& options) {
  const int per_host = options.cluster.gpus_per_host;
  if (options.ranks < 1) {
    fail_as(ErrorKind::usage, "--ranks: is {}, expected at least one", options.ranks);
  }
  if (options.ranks > per_host && options.ranks % per_host != 0) {
    fail_as(ErrorKind::usage,
            "--ranks: {} ranks do not fill hosts of {} GPUs ({}: gpus_per_host); take a multiple, "
            "or at most one host",
            options.ranks, per_host, options.cluster.name);
  }
}

// Reads and writes of a planned disk take no time.
void refuse_disk(const Plan& plan) {
  const auto offload = shard_options_of(plan).offload;
  if (offload.parameters.tier != tiers::Tier::disk && offload.optimizer.tier != tiers::Tier::disk) {
    return;
  }
  fail_as(ErrorKind::usage,
          "simulate: offload to a disk cannot be simulated yet; simulate host memory (--offload "
          "all), and see fullshard bench disk for what a disk can do");
}

EstimateOptions workload_of(const SimulateOptions& options) {
  return {.ranks = options.ranks,
          .ranks_per_host = std::min(options.ranks, options.cluster.gpus_per_host),
          .device = at::Device(at::kCUDA, 0),
          .sequence_length = options.sequence_length,
          .target_length = options.target_length,
          .reduce_once = options.reduce_once,
          .label_smoothing = options.label_smoothing};
}

}  // namespace

RecordedRun record_run(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                       const SimulateOptions& options, tensor::RealGpus real) {
  check_ranks(options);
  refuse_disk(plan);
  const auto workload = workload_of(options);
  const int64_t rows = plan.batch_sizes(options.ranks).micro_batch;
  tensor::pretend_gpus(real);
  const tensor::PretenceScope pretence;
  const auto recorder = std::make_shared<ScheduleRecorder>();
  const tensor::OperatorWatchScope watched(recorder);
  const auto world = comm::fake_world({.size = options.ranks,
                                       .ranks_per_host = workload.ranks_per_host,
                                       .device = workload.device,
                                       .watch = recorder});
  const planning::PlannedRun run{
      .plan = plan,
      .options = workload,
      .micro_batch =
          [&] { return model->forward(planning::planned_inputs(*model, rows, workload)).loss; },
      .num_steps = kRecordedSteps,
      .settles = false};
  RecordedRun result;
  result.memory = planning::run_plan(model, world, run, [&] { recorder->begin_step(); });
  result.schedule = recorder->take();
  return result;
}

}  // namespace fullshard::simulation

namespace fullshard {

Simulation simulate(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                    const SimulateOptions& options) {
  const auto recorded = simulation::record_run(model, plan, options);
  const auto batch = plan.batch_sizes(options.ranks);
  Simulation result{.ranks = options.ranks, .memory = recorded.memory};
  result.num_tokens = batch.micro_batch * batch.accumulation * options.sequence_length;
  result.timeline = simulation::replay(recorded.schedule,
                                       {.kernel =
                                            [&](const tensor::OperatorCall& call) {
                                              return simulation::seconds_of(call, options.cluster,
                                                                            options.kernels);
                                            },
                                        .collective =
                                            [&](const simulation::Collective& call) {
                                              return simulation::seconds_of(call, options.cluster);
                                            },
                                        .collective_share = simulation::kCollectiveShare});
  result.step_seconds = result.timeline.step_seconds;
  return result;
}

}  // namespace fullshard
