// SPDX-License-Identifier: Apache-2.0
#include "fullshard/simulation/simulate.h"

#include <algorithm>
#include <limits>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/fake_world.h"
#include "fullshard/planning/planned_run.h"
#include "fullshard/simulation/kernel_cost.h"
#include "fullshard/simulation/link_cost.h"
#include "fullshard/train/apply_plan.h"

namespace fullshard::simulation {
namespace {

// The first observes the order of units; the last two are the steady state.
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

// A disk of unknown speed cannot be simulated.
void check_disk(const Plan& plan, const Cluster& cluster) {
  if (!shard_options_of(plan).offload.uses_disk() || cluster.disk_bandwidth > 0) return;
  fail_as(ErrorKind::usage,
          "simulate: something is offloaded to a disk, but {} does not say how fast disks are; add "
          "disk: 6GB/s, or give --disk",
          cluster.name);
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

SentBytes sent_in_last_step(const RecordedSchedule& schedule) {
  SentBytes sent;
  for (size_t i = schedule.last_step; i < schedule.tasks.size(); ++i) {
    const ScheduledTask& task = schedule.tasks[i];
    if (task.kind != TaskKind::collective) continue;
    const SentBytes own = sent_bytes(task.call);
    sent.all += own.all;
    sent.between_hosts += own.between_hosts;
  }
  return sent;
}

}  // namespace

RecordedRun record_run(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                       const SimulateOptions& options, tensor::RealGpus real) {
  check_ranks(options);
  check_disk(plan, options.cluster);
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
      .most_micro_batches = std::numeric_limits<int>::max(),
      .settles = false};
  RecordedRun result;
  result.memory = planning::run_plan(model, world, run, [&] { recorder->end_step(); });
  result.schedule = recorder->take();
  return result;
}

}  // namespace fullshard::simulation

namespace fullshard {

Simulation simulate(const std::shared_ptr<LanguageModel>& model, const Plan& plan,
                    const SimulateOptions& options) {
  const auto recorded = simulation::record_run(model, plan, options);
  const auto batch = plan.batch_sizes(options.ranks);
  Simulation result{.ranks = options.ranks,
                    .memory = recorded.memory,
                    .sent = simulation::sent_in_last_step(recorded.schedule)};
  result.num_tokens = batch.micro_batch * batch.accumulation * options.sequence_length;
  const Cluster& cluster = options.cluster;
  const int sharing_disk = std::min(options.ranks, cluster.gpus_per_host);
  const double slowest = simulation::slowest_factor(cluster, options.ranks);
  const simulation::TaskCosts costs{
      .kernel =
          [&](const tensor::OperatorCall& call) {
            return slowest * simulation::seconds_of(call, cluster, options.kernels);
          },
      .collective =
          [&](const simulation::Collective& call) { return simulation::seconds_of(call, cluster); },
      .disk =
          [&](int64_t bytes) {
            return static_cast<double>(bytes) * sharing_disk / cluster.disk_bandwidth;
          },
      .share =
          [&](const simulation::Collective& call) { return simulation::share_of(call, cluster); }};
  result.timeline = simulation::replay(recorded.schedule, costs);
  result.step_seconds = result.timeline.step_seconds;
  return result;
}

}  // namespace fullshard
