// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "fullshard/config/plan_maker.h"

namespace fullshard::config {

void PlanMaker::follow_lr_flag(Settings& deepspeed) {
  const Settings::Entry* lr = deepspeed.find("optimizer.params.lr");
  if (lr == nullptr || lr->origin.note != "--lr" || !deepspeed.has("scheduler.type")) return;
  for (const FlagValue& flag : options_.flags) {
    if (is_trainer_schedule(flag.value)) return;  // it takes the optimizer's rate
  }
  constexpr std::string_view kPeak = "scheduler.params.warmup_max_lr";
  const Settings::Entry* peak = deepspeed.find(kPeak);
  const std::string type = deepspeed.variant_of(kPeak);
  if (type == "onecycle" || type == "lrrangetest") {
    warn({.note = "--lr"}, fmt::format("without effect: {} states its own rates",
                                       deepspeed.find("scheduler.type")->value.text));
    return;
  }
  const bool follows = peak != nullptr || type == "warmupdecaylr";  // whose default is a number
  if (deepspeed.key_of(kPeak) == nullptr || !follows || deepspeed.is_auto(kPeak)) return;
  if (peak != nullptr && peak->origin.from == Origin::From::flag) return;
  if (peak != nullptr && !same_value(peak->value, lr->value)) {
    warn(peak->origin, fmt::format("is {}, --lr makes it {}", peak->value.text, lr->value.text));
  }
  Origin origin = lr->origin;
  origin.key = kPeak;
  deepspeed.put(kPeak, ConfigNode(lr->value), std::move(origin));
}

void PlanMaker::fill_from_deepspeed(Plan& plan, Settings deepspeed) {
  follow_lr_flag(deepspeed);
  resolve_auto(deepspeed, options_.inputs);
  settle_batch(deepspeed, plan.launch.ranks.value);
  fill_zero(plan, deepspeed);
  fill_offload(plan, deepspeed);
  fill_precision(plan, deepspeed);
  fill_optimizer(plan, deepspeed);
  fill_scheduler(plan, deepspeed);
  plan.clipping = deepspeed.get<double>("gradient_clipping");
  plan.compute_grad_norm = deepspeed.get<bool>("zero_optimization.compute_grad_norm");
  plan.batch.global = deepspeed.get_optional<int64_t>("train_batch_size");
  plan.batch.micro = deepspeed.get_optional<int64_t>("train_micro_batch_size_per_gpu");
  plan.batch.accumulation = deepspeed.get_optional<int64_t>("gradient_accumulation_steps");
  plan.batch.drop_last = deepspeed.get<bool>("dataloader_drop_last");
  fill_logging(plan.logging, deepspeed);
  for (const std::string_view name : {"partition_activations", "contiguous_memory_optimization",
                                      "number_checkpoints", "cpu_checkpointing"}) {
    const std::string path = fmt::format("activation_checkpointing.{}", name);
    const Settings::Entry* entry = deepspeed.find(path);
    if (entry == nullptr) continue;
    const bool asks = entry->value.kind == NodeKind::integer || entry->value.boolean;
    if (asks && !plan.recompute.enabled.value) plan.recompute.enabled = {true, entry->origin};
  }
  plan.recompute.offload = deepspeed.get<bool>("activation_checkpointing.cpu_checkpointing");
  plan.checkpoint.tag_validation = deepspeed.get<std::string>("checkpoint.tag_validation");
  plan.checkpoint.node_local = deepspeed.get<bool>("checkpoint.use_node_local_storage");
  plan.deepspeed_ = std::make_shared<Settings>(std::move(deepspeed));
}

void PlanMaker::fill_logging(LoggingPlan& logging, const Settings& settings) {
  logging.steps_per_print = settings.get_optional<int64_t>("steps_per_print");
  logging.wall_clock_breakdown = settings.get<bool>("wall_clock_breakdown");
  logging.memory_breakdown = settings.get<bool>("memory_breakdown");
  logging.log_level = settings.get_optional<std::string>("log_level");
  const auto monitor = [&](const std::string& section) {
    return MonitorPlan{settings.get<bool>(section + ".enabled"),
                       settings.get<std::string>(section + ".output_path"),
                       settings.get<std::string>(section + ".job_name")};
  };
  logging.tensorboard = monitor("tensorboard");
  logging.csv_monitor = monitor("csv_monitor");
  logging.comms_logger = {
      settings.get<bool>("comms_logger.enabled"), settings.get<bool>("comms_logger.verbose"),
      settings.get<bool>("comms_logger.prof_all"), settings.get<bool>("comms_logger.debug"),
      settings.get<std::vector<std::string>>("comms_logger.prof_ops")};
  logging.flops_profiler = {settings.get<bool>("flops_profiler.enabled"),
                            settings.get<int64_t>("flops_profiler.profile_step"),
                            settings.get<int64_t>("flops_profiler.module_depth"),
                            settings.get<int64_t>("flops_profiler.top_modules"),
                            settings.get<bool>("flops_profiler.detailed"),
                            settings.get_optional<std::string>("flops_profiler.output_file")};
}

void PlanMaker::settle_batch(Settings& deepspeed, std::optional<int64_t> ranks) {
  if (options_.ranks) ranks = options_.ranks;
  if (!ranks) ranks = ranks_of_batch(deepspeed);
  if (!ranks) ranks = options_.assumed_ranks;
  constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
  if (problems_.ok() && !file_.empty() && !deepspeed.has(kMicro) &&
      !deepspeed.has("train_batch_size") && family_ == Family::deepspeed) {
    warn({.file = file_, .key = std::string(kMicro)},
         fmt::format("is not set, nor is train_batch_size: every rank takes {}, the Trainer's "
                     "default",
                     options_.inputs.per_device_train_batch_size));
  }
  if (ranks) {
    resolve_batch(deepspeed, options_.inputs, *ranks, problems_);
  } else {
    check_batch_for_any_ranks(deepspeed, problems_);
  }
}

void PlanMaker::fill_zero(Plan& plan, const Settings& settings) {
  const auto flag = [&](std::string_view name) {
    return settings.get<bool>(fmt::format("zero_optimization.{}", name));
  };
  const auto size = [&](std::string_view name) {
    return settings.get<int64_t>(fmt::format("zero_optimization.{}", name));
  };
  ShardingPlan& sharding = plan.sharding;
  sharding.stage = settings.get_optional<int64_t>("zero_optimization.stage");
  const int64_t stage = sharding.stage.value.value_or(0);
  sharding.overlap_comm = flag("overlap_comm");
  if (!settings.has("zero_optimization.overlap_comm")) {
    sharding.overlap_comm = {stage == 3,
                             {.from = Origin::From::derived,
                              .key = "zero_optimization.overlap_comm",
                              .note = fmt::format("stage {}", stage)}};
  }
  sharding.reduce_scatter = flag("reduce_scatter");
  sharding.allgather_partitions = flag("allgather_partitions");
  if (const auto disabled = settings.get<bool>("disable_allgather"); disabled.value) {
    sharding.allgather_partitions = {false, disabled.origin};
  }
  sharding.contiguous_gradients = flag("contiguous_gradients");
  sharding.round_robin_gradients = flag("round_robin_gradients");
  sharding.allgather_bucket_size = size("allgather_bucket_size");
  if (settings.has("allgather_size") && !settings.has("zero_optimization.allgather_bucket_size")) {
    sharding.allgather_bucket_size = settings.get<int64_t>("allgather_size");
  }
  sharding.reduce_bucket_size = size("reduce_bucket_size");
  sharding.sub_group_size = size("sub_group_size");
  sharding.prefetch_bucket_size = size("stage3_prefetch_bucket_size");
  sharding.param_persistence_threshold = size("stage3_param_persistence_threshold");
  sharding.max_live_parameters = size("stage3_max_live_parameters");
  sharding.max_reuse_distance = size("stage3_max_reuse_distance");
  const auto factor = size("mics_shard_size");
  sharding.factor.origin = factor.origin;
  if (factor.value > 0) sharding.factor.value = factor.value;
  plan.wrap.leaves =
      settings.get<std::vector<std::string>>("zero_optimization.leaf_module.classes");
  plan.checkpoint.gather_16bit_weights = flag("stage3_gather_16bit_weights_on_model_save");
  plan.checkpoint.load_from_fp32_weights = flag("load_from_fp32_weights");
}

void PlanMaker::fill_offload(Plan& plan, const Settings& settings) {
  const auto fill = [&](OffloadTarget& target, const std::string& section,
                        std::string_view old_key) {
    target.device = settings.get<std::string>(section + ".device");
    target.nvme_path = settings.get_optional<std::string>(section + ".nvme_path");
    target.buffer_count = settings.get<int64_t>(section + ".buffer_count");
    target.pin_memory = settings.get<bool>(section + ".pin_memory");
    const Settings::Entry* old = settings.find(old_key);
    if (old == nullptr) return;
    warn(old->origin, fmt::format("is the old name of {}.device", section));
    if (old->value.boolean && settings.has(section + ".device")) {
      error(old->origin, fmt::format("says the same as {}.device", section), "keep one of them");
    } else if (old->value.boolean) {
      target.device = {"cpu", old->origin};
    }
  };
  OffloadPlan& offload = plan.offload;
  fill(offload.parameters, "zero_optimization.offload_param",
       "zero_optimization.cpu_offload_param");
  fill(offload.optimizer, "zero_optimization.offload_optimizer", "zero_optimization.cpu_offload");
  if (const Settings::Entry* pin = settings.find("zero_optimization.cpu_offload_use_pin_memory")) {
    warn(pin->origin, "is the old name of pin_memory in offload_param and offload_optimizer");
    offload.parameters.pin_memory = {pin->value.boolean, pin->origin};
    offload.optimizer.pin_memory = {pin->value.boolean, pin->origin};
  }
  const std::string parameters = "zero_optimization.offload_param.";
  const std::string optimizer = "zero_optimization.offload_optimizer.";
  offload.parameter_buffer_size = settings.get<int64_t>(parameters + "buffer_size");
  offload.max_in_cpu = settings.get<int64_t>(parameters + "max_in_cpu");
  offload.pipeline_read = settings.get<bool>(optimizer + "pipeline_read");
  offload.pipeline_write = settings.get<bool>(optimizer + "pipeline_write");
  offload.fast_init = settings.get<bool>(optimizer + "fast_init");
  offload.ratio = settings.get<double>(optimizer + "ratio");
  offload.block_size = settings.get<int64_t>("aio.block_size");
  offload.queue_depth = settings.get<int64_t>("aio.queue_depth");
  offload.threads = settings.get<int64_t>("aio.intra_op_parallelism");
  offload.single_submit = settings.get<bool>("aio.single_submit");
  offload.overlap_events = settings.get<bool>("aio.overlap_events");
}

void PlanMaker::fill_precision(Plan& plan, const Settings& settings) {
  PrecisionPlan& precision = plan.precision;
  precision.fp16 = settings.get<bool>("fp16.enabled");
  precision.fp16_master_weights_and_grads =
      settings.get<bool>("fp16.fp16_master_weights_and_grads");
  precision.bf16 = settings.get<bool>("bf16.enabled");
  precision.bf16_master_weights_and_grads =
      settings.get<bool>("bf16.bf16_master_weights_and_grads");
  precision.bf16_optimizer_states = settings.get<bool>("bf16.bf16_optimizer_states");
  if (const auto amp = settings.get<bool>("amp.enabled"); amp.value) {
    precision.amp = {settings.get<std::string>("amp.opt_level").value, amp.origin};
  }
  precision.communication_data_type = settings.get_optional<std::string>("communication_data_type");
  precision.grad_accum_dtype = settings.get_optional<std::string>("data_types.grad_accum_dtype");
  precision.param_dtype = settings.get_optional<std::string>("data_types.param_dtype");
  precision.buffer_dtype = settings.get_optional<std::string>("data_types.buffer_dtype");
  precision.scale = {settings.get<double>("fp16.loss_scale"),
                     settings.get<int64_t>("fp16.initial_scale_power"),
                     settings.get<int64_t>("fp16.loss_scale_window"),
                     settings.get<int64_t>("fp16.hysteresis"),
                     settings.get<bool>("fp16.consecutive_hysteresis"),
                     settings.get<int64_t>("fp16.min_loss_scale")};
}

void PlanMaker::fill_optimizer(Plan& plan, const Settings& settings) {
  OptimizerPlan& optimizer = plan.optimizer;
  optimizer.allow_untested = settings.get<bool>("zero_allow_untested_optimizer");
  optimizer.force_cpu_optimizer = settings.get<bool>("zero_force_ds_cpu_optimizer");
  const auto flag = [&](std::string_view name) {
    return settings.get<bool>(fmt::format("optimizer.params.{}", name));
  };
  const auto number = [&](std::string_view name) {
    return settings.get<double>(fmt::format("optimizer.params.{}", name));
  };
  optimizer.type = settings.get<std::string>("optimizer.type");
  optimizer.lr = number("lr");
  // Without a section: the Trainer's AdamW, whose other defaults are DeepSpeed's too.
  if (!settings.has("optimizer.type") && !settings.has("optimizer.params.lr")) {
    optimizer.lr.value = options_.inputs.learning_rate;
  }
  optimizer.betas = settings.get<std::vector<double>>("optimizer.params.betas");
  optimizer.eps = number("eps");
  optimizer.weight_decay = number("weight_decay");
  optimizer.bias_correction = flag("bias_correction");
  optimizer.adam_w_mode = flag("adam_w_mode");
  optimizer.eps_inside_sqrt = flag("eps_inside_sqrt");
  optimizer.max_coeff = number("max_coeff");
  optimizer.min_coeff = number("min_coeff");
  optimizer.freeze_step = settings.get<int64_t>("optimizer.params.freeze_step");
  optimizer.lr_decay = number("lr_decay");
  optimizer.initial_accumulator_value = number("initial_accumulator_value");
  optimizer.momentum = number("momentum");
  optimizer.dampening = number("dampening");
  optimizer.nesterov = flag("nesterov");
}

void PlanMaker::fill_scheduler(Plan& plan, const Settings& settings) {
  if (!settings.has("scheduler.type")) {  // the default schedule, unless a flag sets one
    if (settings.has("scheduler.params.warmup_num_steps")) {
      plan.scheduler.warmup_num_steps = settings.get<int64_t>("scheduler.params.warmup_num_steps");
    }
    plan.scheduler.total_num_steps =
        settings.get_optional<int64_t>("scheduler.params.total_num_steps");
    return;
  }
  const auto number = [&](std::string_view name) {
    return settings.get<double>(fmt::format("scheduler.params.{}", name));
  };
  const auto maybe_number = [&](std::string_view name) {
    return settings.get_optional<double>(fmt::format("scheduler.params.{}", name));
  };
  const auto integer = [&](std::string_view name) {
    return settings.get<int64_t>(fmt::format("scheduler.params.{}", name));
  };
  const auto maybe_integer = [&](std::string_view name) {
    return settings.get_optional<int64_t>(fmt::format("scheduler.params.{}", name));
  };
  plan.scheduler = {
      .type = settings.get<std::string>("scheduler.type"),
      .warmup_min_lr = number("warmup_min_lr"),
      .warmup_max_lr = maybe_number("warmup_max_lr"),
      .warmup_num_steps = integer("warmup_num_steps"),
      .warmup_type = settings.get<std::string>("scheduler.params.warmup_type"),
      .total_num_steps = maybe_integer("total_num_steps"),
      .warmup_min_ratio = number("warmup_min_ratio"),
      .cos_min_ratio = number("cos_min_ratio"),
      .cycle_min_lr = maybe_number("cycle_min_lr"),
      .cycle_max_lr = maybe_number("cycle_max_lr"),
      .decay_lr_rate = number("decay_lr_rate"),
      .cycle_first_step_size = integer("cycle_first_step_size"),
      .cycle_second_step_size = maybe_integer("cycle_second_step_size"),
      .cycle_first_stair_count = integer("cycle_first_stair_count"),
      .cycle_second_stair_count = maybe_integer("cycle_second_stair_count"),
      .decay_step_size = integer("decay_step_size"),
      .cycle_momentum = settings.get<bool>("scheduler.params.cycle_momentum"),
      .cycle_min_mom = number("cycle_min_mom"),
      .cycle_max_mom = number("cycle_max_mom"),
      .decay_mom_rate = number("decay_mom_rate"),
      .lr_range_test_min_lr = number("lr_range_test_min_lr"),
      .lr_range_test_step_size = integer("lr_range_test_step_size"),
      .lr_range_test_step_rate = number("lr_range_test_step_rate"),
      .lr_range_test_staircase = settings.get<bool>("scheduler.params.lr_range_test_staircase")};
  const bool is_named_by_flag = plan.scheduler.type.origin.from == Origin::From::flag;
  if (is_named_by_flag && !settings.has("scheduler.params.warmup_num_steps")) {
    plan.scheduler.warmup_num_steps = SchedulerPlan{}.warmup_num_steps;  // --warmup's default
  }
}

}  // namespace fullshard::config
