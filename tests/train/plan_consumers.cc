// SPDX-License-Identifier: Apache-2.0
#include "tests/train/plan_consumers.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/own_optimizer.h"
#include "fullshard/train/run_settings.h"

namespace fullshard::testing {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kRunSteps = 200;
constexpr int kTrainedSteps = 3;

struct PlanBlockImpl : Unit {
  PlanBlockImpl() : linear(register_module("linear", torch::nn::Linear(6, 6))) {}
  at::Tensor forward(const at::Tensor& x) { return x + linear(x).tanh(); }
  torch::nn::Linear linear;
};
FULLSHARD_UNIT(PlanBlock);

struct PlanRootImpl : Unit {
  PlanRootImpl()
      : first(register_module("first", PlanBlock())),
        second(register_module("second", PlanBlock())) {
    at::NoGradGuard no_grad;
    uint64_t seed = 1;
    for (auto& parameter : parameters()) {
      parameter.normal_(0, 0.3, at::detail::createCPUGenerator(seed++));
    }
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x)); }
  PlanBlock first, second;
};
FULLSHARD_UNIT(PlanRoot);

template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? fmt::format("{}", static_cast<double>(*value)) : "-";
}

// Dtypes as numbers: only their difference counts.
std::string options_text(const ShardOptions& options) {
  const auto& [sharding, schedule, traffic] =
      std::tie(options.sharding, options.schedule, options.traffic);
  std::string text = fmt::format("sharding {} {} {} {}\n", static_cast<int>(sharding.strategy),
                                 text_of(sharding.zero_stage), text_of(sharding.sharding_factor),
                                 text_of(sharding.reshard_after_forward));
  text += fmt::format(
      "schedule {} {} {} {} {} {} {}\n", static_cast<int>(schedule.backward_prefetch),
      text_of(schedule.forward_prefetch), schedule.max_gathers_in_flight, schedule.overlap_comm,
      schedule.prefetch_bucket_size, schedule.max_live_parameters, schedule.max_reuse_distance);
  text += fmt::format("traffic {} {} {} {}\n", traffic.reduce_scatter, traffic.allgather_partitions,
                      traffic.allgather_bucket_size, traffic.reduce_bucket_size);
  text += fmt::format("dtypes {} {} {} {} {} {}\n", text_of(options.param_dtype),
                      text_of(options.master_dtype), text_of(options.reduce_dtype),
                      text_of(options.gradient_dtype), text_of(options.buffer_dtype),
                      text_of(options.output_dtype));
  text += fmt::format("others {} {} {} {} {} {} {}\n", options.recompute.is_none(),
                      options.offload_activations, options.sync_module_states,
                      options.contiguous_gradients, options.round_robin_gradients,
                      options.sub_group_size, options.param_persistence_threshold);
  const auto place = [](const tiers::OffloadPlace& to) {
    return fmt::format("{} {} {} {}", name_of(to.tier), to.folder, to.pin_memory, to.buffer_count);
  };
  const auto& offload = options.offload;
  text +=
      fmt::format("offload {} {} {} {} {} {} {} {} {} {} {} {}\n", place(offload.parameters),
                  offload.buffer_size, offload.max_in_cpu, place(offload.optimizer),
                  text_of(offload.ratio), text_of(offload.resident_bytes), offload.pipeline_read,
                  offload.pipeline_write, offload.fast_init, offload.everything,
                  static_cast<int>(offload.stepping), text_of(offload.host_share));
  text += fmt::format("aio {} {} {} {} {}\n", offload.disk.block_size, offload.disk.queue_depth,
                      offload.disk.num_threads, offload.disk.single_submit,
                      offload.disk.overlap_events);
  return text;
}

std::string stepper_text(const StepperOptions& options) {
  std::string text = fmt::format("stepper {} {} {}", options.max_grad_norm,
                                 options.accumulation_steps, options.reports_norm);
  if (const auto& scale = options.loss_scale) {
    text += fmt::format(" {} {} {} {} {} {}", scale->loss_scale, scale->initial_scale_power,
                        scale->loss_scale_window, scale->hysteresis, scale->consecutive_hysteresis,
                        scale->min_loss_scale);
  }
  return text + "\n";
}

std::string rates_text(const Plan& plan) {
  const auto schedule = make_schedule(plan, kRunSteps);
  std::string text = "rates";
  for (int64_t step = 0; step < kRunSteps; ++step) {
    const Rates rates = schedule->at(step, *plan.optimizer.lr);
    text += fmt::format(" {}/{}/{}", rates.lr, text_of(rates.momentum), text_of(rates.beta2));
  }
  return text + "\n";
}

// Units, and what some steps make of the values. Rates stay the optimizer's own.
std::string training_text(const Plan& plan, ShardOptions options) {
  options.sharding = {};  // one rank has nothing to share
  PlanRoot model;
  auto sharded = shard(model, World::single(), options);
  std::string text = sharded.tree();
  const auto optimizer = make_optimizer(sharded, plan);
  Stepper stepper(sharded, *optimizer);
  for (int step = 0; step < kTrainedSteps; ++step) {
    const auto inputs =
        at::randn({3, 6}, at::detail::createCPUGenerator(static_cast<uint64_t>(step)));
    stepper.backward(model(inputs).to(at::kFloat).pow(2).mean());
    stepper.step();
  }
  for (const auto& piece : sharded.pieces()) {
    const auto values = piece.master.to(at::kDouble).contiguous();
    for (int64_t i = 0; i < values.numel(); ++i) {
      text += fmt::format(" {}", values.const_data_ptr<double>()[i]);
    }
  }
  return text + "\n";
}

std::string comms_text(const train::CommsLogOptions& comms) {
  return fmt::format("{} {} {} {} {}", comms.is_enabled, comms.is_verbose, comms.names_callers,
                     comms.logs_all, fmt::join(comms.operations, ","));
}

std::string flops_text(const train::FlopsProfilerOptions& flops) {
  return fmt::format("{} {} {} {} {} {}", flops.is_enabled, flops.step, flops.module_depth,
                     flops.top_modules, flops.is_detailed, flops.output_file.value_or("-"));
}

std::string run_text(const Plan& plan) {
  const train::RunSettings run = train::run_settings_of(plan);
  const auto level = spdlog::get_level();
  train::set_log_level(plan);
  const auto chosen = spdlog::get_level();
  spdlog::set_level(level);
  const BatchSizes batch = plan.batch_sizes(kRanks);
  const auto monitor = [](const report::MonitorSettings& settings) {
    return fmt::format("{} '{}' '{}'", settings.is_enabled, settings.output_path,
                       settings.job_name);
  };
  return fmt::format(
      "run {} {} {} {} {} {} {} {} {} {} {} {} batch {} {} {} monitors {} {} {} {}\n",
      static_cast<int>(precision_of(plan).optimizer_state), static_cast<int>(run.saved_dtype),
      static_cast<int>(run.tag_validation), run.saves_whole_weights, run.loads_fp32_weights,
      run.withholds_model, run.is_node_local, run.drops_last_batch, run.records_phases,
      run.shows_memory, text_of(run.steps_per_print), static_cast<int>(chosen), batch.global_batch,
      batch.micro_batch, batch.accumulation, monitor(run.tensorboard), monitor(run.csv_monitor),
      comms_text(run.comms_log), flops_text(run.flops_profiler));
}

std::string own_optimizer_text(const Plan& plan) {
  const ForeignOptimizerRules rules = foreign_optimizer_rules(plan);
  return fmt::format("own optimizer {} {} {} {}\n", rules.zero_allow_untested_optimizer,
                     rules.zero_force_ds_cpu_optimizer, rules.offload, rules.stage);
}

std::string launch_text(const LaunchPlan& plan) {
  const auto or_none = [](const auto& setting) { return setting.value.value_or("-"); };
  return fmt::format("launch {} {} {} {} {} {} {} {} {} {} {}\n", text_of(*plan.ranks),
                     *plan.machines, *plan.machine_rank, or_none(plan.address), text_of(*plan.port),
                     or_none(plan.device), *plan.gpu_ids, *plan.bind_cores, or_none(plan.hostfile),
                     or_none(plan.include), or_none(plan.exclude));
}

}  // namespace

std::string consumers_of(const Plan& plan) {
  const ShardOptions options = shard_options_of(plan);
  return options_text(options) + stepper_text(stepper_options_of(plan, kRanks)) + rates_text(plan) +
         training_text(plan, options) + run_text(plan) + own_optimizer_text(plan) +
         launch_text(plan.launch);
}

}  // namespace fullshard::testing
