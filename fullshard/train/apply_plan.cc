// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/apply_plan.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <string>

#include "fullshard/base/error.h"
#include "fullshard/config/offload.h"
#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/schedules/cycle_schedules.h"
#include "fullshard/optim/schedules/trainer_decays.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/optim/schedules/warmup_schedules.h"
#include "fullshard/optim/sgd.h"

namespace fullshard {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

WrapPolicy wrap_of(const WrapPlanSettings& wrap) {
  const auto& policy = *wrap.policy;
  if (policy == "NO_WRAP") return WrapPolicy::none();
  if (policy == "SIZE_BASED_WRAP") return WrapPolicy::min_size(*wrap.min_num_params);
  // Without names: the model's own blocks, which are those that it marks.
  if (policy == "TRANSFORMER_BASED_WRAP" && !wrap.classes->empty()) {
    return WrapPolicy::classes(*wrap.classes);
  }
  return WrapPolicy::marked();
}

BackwardPrefetch prefetch_of(const std::string& name) {
  if (name == "BACKWARD_PRE") return BackwardPrefetch::pre;
  if (name == "BACKWARD_POST") return BackwardPrefetch::post;
  return BackwardPrefetch::none;
}

ShardingOptions sharding_of(const ShardingPlan& plan) {
  ShardingOptions sharding;
  sharding.strategy = parse_strategy(*plan.strategy);
  if (*plan.stage) sharding.zero_stage = static_cast<int>(**plan.stage);
  if (*plan.factor) sharding.sharding_factor = static_cast<int>(**plan.factor);
  sharding.reshard_after_forward = *plan.reshard_after_forward;
  return sharding;
}

ScheduleOptions schedule_of(const ShardingPlan& plan) {
  ScheduleOptions schedule;
  schedule.backward_prefetch = prefetch_of(*plan.backward_prefetch);
  if (plan.forward_prefetch.origin.is_explicit())
    schedule.forward_prefetch = *plan.forward_prefetch;
  if (!*plan.limit_all_gathers) schedule.max_gathers_in_flight = std::numeric_limits<int>::max();
  schedule.overlap_comm = *plan.overlap_comm;
  schedule.prefetch_bucket_size = *plan.prefetch_bucket_size;
  schedule.max_live_parameters = *plan.max_live_parameters;
  schedule.max_reuse_distance = *plan.max_reuse_distance;
  return schedule;
}

engine::TrafficOptions traffic_of(const ShardingPlan& plan) {
  engine::TrafficOptions traffic;
  traffic.reduce_scatter = *plan.reduce_scatter;
  traffic.allgather_partitions = *plan.allgather_partitions;
  traffic.allgather_bucket_size = *plan.allgather_bucket_size;
  traffic.reduce_bucket_size = *plan.reduce_bucket_size;
  return traffic;
}

double beta(const OptimizerPlan& plan, size_t index) { return plan.betas->at(index); }

int64_t accumulation_of(const Plan& plan, std::optional<int64_t> num_ranks) {
  if (num_ranks) return plan.batch_sizes(*num_ranks).accumulation;
  const BatchPlan& batch = plan.batch;
  if (*batch.accumulation) return **batch.accumulation;
  if (*batch.global && *batch.micro) {
    fail_as(ErrorKind::usage,
            "gradient_accumulation_steps follows from train_batch_size {}, "
            "train_micro_batch_size_per_gpu {} and the number of ranks, which is not said; call "
            "stepper_options_of(plan, world.size())",
            **batch.global, **batch.micro);
  }
  return 1;
}

// What all of them are told.
template <class Options>
Options common_options(const Plan& plan) {
  Options options;
  options.lr = *plan.optimizer.lr;
  options.weight_decay = *plan.optimizer.weight_decay;
  options.state_dtype = precision_of(plan).optimizer_state;
  if constexpr (requires { options.beta1; }) {
    options.beta1 = beta(plan.optimizer, 0);
    options.beta2 = beta(plan.optimizer, 1);
  }
  if constexpr (requires { options.epsilon; }) options.epsilon = *plan.optimizer.eps;
  return options;
}

std::unique_ptr<Optimizer> make_adam(const ShardedModel& model, const Plan& plan, bool decoupled) {
  auto options = common_options<AdamWOptions>(plan);
  options.adam_w_mode = decoupled;
  options.bias_correction = *plan.optimizer.bias_correction;
  return std::make_unique<AdamW>(model, options);
}

std::unique_ptr<Optimizer> make_lamb(const ShardedModel& model, const Plan& plan) {
  auto options = common_options<LambOptions>(plan);
  options.bias_correction = *plan.optimizer.bias_correction;
  options.eps_inside_sqrt = *plan.optimizer.eps_inside_sqrt;
  options.max_coeff = *plan.optimizer.max_coeff;
  options.min_coeff = *plan.optimizer.min_coeff;
  return std::make_unique<Lamb>(model, options);
}

std::unique_ptr<Optimizer> make_sgd(const ShardedModel& model, const Plan& plan) {
  auto options = common_options<SgdOptions>(plan);
  options.momentum = *plan.optimizer.momentum;
  options.dampening = *plan.optimizer.dampening;
  options.nesterov = *plan.optimizer.nesterov;
  return std::make_unique<Sgd>(model, options);
}

std::unique_ptr<Optimizer> make_adagrad(const ShardedModel& model, const Plan& plan) {
  auto options = common_options<AdagradOptions>(plan);
  // PyTorch's and DeepSpeed's, and not that of Adam.
  if (!plan.optimizer.eps.origin.is_explicit()) options.epsilon = AdagradOptions{}.epsilon;
  options.lr_decay = *plan.optimizer.lr_decay;
  options.initial_accumulator_value = *plan.optimizer.initial_accumulator_value;
  return std::make_unique<Adagrad>(model, options);
}

// DeepSpeed leaves the momentum of the others alone.
bool has_betas(const OptimizerPlan& plan) {
  const std::string type = lower(*plan.type);
  return type != "sgd" && type != "adagrad";
}

std::unique_ptr<LrSchedule> make_cycle(const SchedulerPlan& plan, std::optional<int64_t> total) {
  OneCycleOptions options;
  options.total_num_steps = total;
  options.cycle_min_lr = *plan.cycle_min_lr;
  options.cycle_max_lr = *plan.cycle_max_lr;
  options.decay_lr_rate = *plan.decay_lr_rate;
  options.cycle_first_step_size = *plan.cycle_first_step_size;
  options.cycle_second_step_size = *plan.cycle_second_step_size;
  options.cycle_first_stair_count = *plan.cycle_first_stair_count;
  options.cycle_second_stair_count = *plan.cycle_second_stair_count;
  options.decay_step_size = *plan.decay_step_size;
  options.cycle_momentum = *plan.cycle_momentum;
  options.cycle_min_mom = *plan.cycle_min_mom;
  options.cycle_max_mom = *plan.cycle_max_mom;
  options.decay_mom_rate = *plan.decay_mom_rate;
  return make_one_cycle(options);
}

// No file asks for a schedule, or for one of its rates; a flag may name it.
bool is_unsaid(const SchedulerPlan& plan) {
  const bool is_in_file =
      plan.type.origin.is_explicit() && plan.type.origin.from != Origin::From::flag;
  return *plan.type == SchedulerPlan{}.type.value && !is_in_file && *plan.warmup_min_lr == 0 &&
         !*plan.warmup_max_lr && *plan.warmup_type == "log";
}

std::unique_ptr<LrSchedule> make_range_test(const SchedulerPlan& plan) {
  return make_lr_range_test({.lr_range_test_min_lr = *plan.lr_range_test_min_lr,
                             .lr_range_test_step_size = *plan.lr_range_test_step_size,
                             .lr_range_test_step_rate = *plan.lr_range_test_step_rate,
                             .lr_range_test_staircase = *plan.lr_range_test_staircase});
}

// A share of the run is rounded up, as the Trainer does.
int64_t warmup_steps_of(const SchedulerPlan& plan, int64_t total) {
  if (!*plan.warmup_share) return *plan.warmup_num_steps;
  return static_cast<int64_t>(std::ceil(static_cast<double>(total) * **plan.warmup_share));
}

CosineWithMinLrOptions min_lr_options(const TrainerScheduleArgs& args, int64_t warmup,
                                      int64_t total) {
  return {.num_warmup_steps = warmup,
          .num_training_steps = total,
          .num_cycles = args.num_cycles.value_or(CosineWithMinLrOptions{}.num_cycles),
          .min_lr = args.min_lr,
          .min_lr_rate = args.min_lr_rate,
          .warmup_lr_rate = args.warmup_lr_rate};
}

std::unique_ptr<LrSchedule> make_stable_decay(const TrainerScheduleArgs& args, int64_t warmup,
                                              int64_t total) {
  WarmupStableDecayOptions options{.num_warmup_steps = warmup,
                                   .num_decay_steps = args.num_decay_steps,
                                   .num_training_steps = total,
                                   .num_stable_steps = args.num_stable_steps};
  if (args.warmup_type) options.warmup_type = *args.warmup_type;
  if (args.decay_type) options.decay_type = *args.decay_type;
  if (args.min_lr_ratio) options.min_lr_ratio = *args.min_lr_ratio;
  if (args.num_cycles) options.num_cycles = *args.num_cycles;
  return make_warmup_stable_decay(options);
}

// Its cycles are whole ones.
std::unique_ptr<LrSchedule> make_restarts(const TrainerScheduleArgs& args, int64_t warmup,
                                          int64_t total) {
  const double cycles = args.num_cycles.value_or(1);
  const auto whole = static_cast<int64_t>(std::clamp(cycles, 0.0, 1e9));
  if (static_cast<double>(whole) != cycles) {
    fail_as(ErrorKind::usage, "cosine_with_restarts: num_cycles is {}, expected a whole number",
            cycles);
  }
  return make_cosine_with_restarts(
      {.num_warmup_steps = warmup, .num_training_steps = total, .num_cycles = whole});
}

std::unique_ptr<LrSchedule> make_trainer_schedule(const SchedulerPlan& plan, int64_t warmup,
                                                  int64_t total) {
  const auto& type = *plan.type;
  const TrainerScheduleArgs& args = *plan.trainer;
  if (type == "constant") return make_constant_schedule();
  if (type == "constant_with_warmup") {
    return make_constant_with_warmup({.num_warmup_steps = warmup});
  }
  if (type == "linear") {
    return make_linear_schedule({.num_warmup_steps = warmup, .num_training_steps = total});
  }
  if (type == "cosine") {
    return make_cosine_schedule(
        {.num_warmup_steps = warmup,
         .num_training_steps = total,
         .num_cycles = args.num_cycles.value_or(CosineOptions{}.num_cycles)});
  }
  if (type == "cosine_with_restarts") return make_restarts(args, warmup, total);
  if (type == "polynomial") {
    return make_polynomial_schedule({.num_warmup_steps = warmup,
                                     .num_training_steps = total,
                                     .lr_end = args.lr_end.value_or(PolynomialOptions{}.lr_end),
                                     .power = args.power.value_or(PolynomialOptions{}.power)});
  }
  if (type == "inverse_sqrt") {
    return make_inverse_sqrt_schedule({.num_warmup_steps = warmup, .timescale = args.timescale});
  }
  const auto lowest = min_lr_options(args, warmup, total);
  if (type == "cosine_with_min_lr") return make_cosine_with_min_lr(lowest);
  if (type == "cosine_warmup_with_min_lr") return make_cosine_warmup_with_min_lr(lowest);
  return make_stable_decay(args, warmup, total);
}

}  // namespace

Precision precision_of(const Plan& plan) {
  const auto& keys = plan.precision;
  PrecisionKeys known;
  known.fp16 = *keys.fp16;
  known.fp16_master_weights_and_grads = *keys.fp16_master_weights_and_grads;
  known.bf16 = *keys.bf16;
  known.fp8 = *keys.fp8;
  known.fp8_e4m3 = *keys.fp8_format == "E4M3";
  known.bf16_master_weights_and_grads = *keys.bf16_master_weights_and_grads;
  known.bf16_optimizer_states = *keys.bf16_optimizer_states;
  known.amp = keys.amp->value_or("");
  known.communication_data_type = keys.communication_data_type->value_or("");
  known.grad_accum_dtype = keys.grad_accum_dtype->value_or("");
  auto precision = Precision::from(known);
  if (*keys.param_dtype) precision.compute = dtype_named("param_dtype", **keys.param_dtype);
  if (*keys.buffer_dtype) precision.buffer = dtype_named("buffer_dtype", **keys.buffer_dtype);
  return precision;
}

ShardOptions shard_options_of(const Plan& plan) {
  plan.check_resolved();
  ShardOptions options;
  options.sharding = sharding_of(plan.sharding);
  options.wrap = wrap_of(plan.wrap);
  options.ignored_modules = *plan.wrap.ignored_modules;
  options.schedule = schedule_of(plan.sharding);
  options.traffic = traffic_of(plan.sharding);
  options.sync_module_states = *plan.sharding.sync_module_states;
  options.contiguous_gradients = *plan.sharding.contiguous_gradients;
  options.round_robin_gradients = *plan.sharding.round_robin_gradients;
  options.sub_group_size = *plan.sharding.sub_group_size;
  options.param_persistence_threshold = *plan.sharding.param_persistence_threshold;
  if (*plan.recompute.enabled) options.recompute = RecomputePolicy::all();
  options.offload_activations = *plan.recompute.offload;
  options.offload = config::offload_of(plan);
  precision_of(plan).apply_to(options);
  return options;
}

ShardedModel shard(const ShardableModule& model, const World& world, const Plan& plan) {
  plan.check(world.size(), world.device().is_cpu() ? "cpu" : "cuda");
  train::set_log_level(plan);
  return shard(model, world, shard_options_of(plan));
}

StepperOptions stepper_options_of(const Plan& plan, std::optional<int64_t> num_ranks) {
  StepperOptions options;
  options.max_grad_norm = *plan.clipping;
  options.reports_norm = *plan.compute_grad_norm || *plan.clipping > 0;
  options.accumulation_steps = static_cast<int>(accumulation_of(plan, num_ranks));
  if (precision_of(plan).loss_scaling) {
    const auto& scale = plan.precision.scale;
    options.loss_scale =
        LossScaleOptions{.loss_scale = *scale.loss_scale,
                         .initial_scale_power = static_cast<int>(*scale.initial_scale_power),
                         .loss_scale_window = static_cast<int>(*scale.loss_scale_window),
                         .hysteresis = static_cast<int>(*scale.hysteresis),
                         .consecutive_hysteresis = *scale.consecutive_hysteresis,
                         .min_loss_scale = static_cast<double>(*scale.min_loss_scale)};
  }
  return options;
}

std::unique_ptr<Optimizer> make_optimizer(const ShardedModel& model, const Plan& plan) {
  const auto type = lower(*plan.optimizer.type);
  // DeepSpeed's "Adam" decouples weight decay too, unless adam_w_mode is false.
  if (type == "adam") return make_adam(model, plan, *plan.optimizer.adam_w_mode);
  if (type == "adamw") return make_adam(model, plan, true);
  if (type == "lamb") return make_lamb(model, plan);
  if (type == "sgd") return make_sgd(model, plan);
  if (type == "adagrad") return make_adagrad(model, plan);
  if (type == "lion") return std::make_unique<Lion>(model, common_options<LionOptions>(plan));
  if (type == "onebitadam") {
    auto options = common_options<OneBitAdamOptions>(plan);
    options.freeze_step = *plan.optimizer.freeze_step;
    return std::make_unique<OneBitAdam>(model, options);
  }
  fail_as(ErrorKind::usage,
          "optimizer type '{}': none of Adam, AdamW, Lamb, Lion, Adagrad, SGD, OneBitAdam; a "
          "torch::optim::Optimizer of your own runs over PieceParameters(sharded)",
          *plan.optimizer.type);
}

std::unique_ptr<LrSchedule> make_schedule(const Plan& plan, int64_t total_steps) {
  const auto& s = plan.scheduler;
  const auto total = s.total_num_steps->value_or(total_steps);
  const auto& type = *s.type;
  const int64_t asked = warmup_steps_of(s, total);
  if (is_unsaid(s)) return make_default_schedule(total, asked);
  if (is_trainer_schedule(type)) return make_trainer_schedule(s, asked, total);
  // DeepSpeed's own take at least two steps and mean the same by none; the Trainer's take none.
  const auto warmup = std::max<int64_t>(1, asked);
  if (type == "WarmupLR") {
    return make_warmup_lr({.warmup_min_lr = *s.warmup_min_lr,
                           .warmup_max_lr = *s.warmup_max_lr,
                           .warmup_num_steps = warmup,
                           .warmup_type = warmup_type_from(*s.warmup_type)});
  }
  if (type == "WarmupDecayLR") {
    return make_warmup_decay_lr({.total_num_steps = total,
                                 .warmup_min_lr = *s.warmup_min_lr,
                                 .warmup_max_lr = *s.warmup_max_lr,
                                 .warmup_num_steps = warmup,
                                 .warmup_type = warmup_type_from(*s.warmup_type)});
  }
  if (type == "WarmupCosineLR") {
    return make_warmup_cosine_lr({.total_num_steps = total,
                                  .warmup_min_ratio = *s.warmup_min_ratio,
                                  .warmup_num_steps = warmup,
                                  .cos_min_ratio = *s.cos_min_ratio,
                                  .warmup_type = warmup_type_from(*s.warmup_type)});
  }
  if (type == "OneCycle") {
    return make_cycle(s, has_betas(plan.optimizer) ? std::optional(total) : std::nullopt);
  }
  if (type == "LRRangeTest") return make_range_test(s);
  fail_as(ErrorKind::usage,
          "scheduler type '{}': none of WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, "
          "LRRangeTest, or of the Trainer's (constant, linear, cosine, …)",
          type);
}

}  // namespace fullshard
