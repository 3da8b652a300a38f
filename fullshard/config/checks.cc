// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/checks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "fullshard/base/printable.h"
#include "fullshard/config/collective_names.h"
#include "fullshard/config/offload.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

Problem problem_at(const Origin& origin, std::string message, std::string suggestion = "") {
  return {.file = origin.file.empty() ? origin.note : origin.file,
          .line = origin.line,
          .key = origin.key,
          .message = std::move(message),
          .suggestion = std::move(suggestion)};
}

class PlanChecks {
 public:
  PlanChecks(const Plan& plan, std::optional<int64_t> ranks,
             const std::optional<std::string>& device, Problems& problems)
      : plan_(plan), ranks_(ranks), device_(device), problems_(problems) {}

  void run() {
    check_precision();
    check_stage();
    check_offload(plan_, problems_);
    check_optimizer();
    check_scheduler();
    check_wrap();
    check_loading();
    check_launch();
    check_comms_logger();
  }

 private:
  void error(const Origin& origin, std::string message, std::string suggestion = "") {
    problems_.errors.push_back(problem_at(origin, std::move(message), std::move(suggestion)));
  }
  void warn(const Origin& origin, std::string message, std::string suggestion = "") {
    problems_.warnings.push_back(problem_at(origin, std::move(message), std::move(suggestion)));
  }
  // A Plan built in code has no keys of a file: then the field's own name is used.
  static Origin named(Origin origin, std::string_view field) {
    if (origin.key.empty()) origin.key = field;
    return origin;
  }
  static std::string at(const Origin& origin) {
    return origin.line > 0 ? fmt::format(" on line {}", origin.line) : "";
  }

  void check_comms_logger() {
    const CommsLoggerPlan& comms = plan_.logging.comms_logger;
    for (const std::string& name : *comms.prof_ops) {
      if (collective_name(name)) continue;
      error(named(comms.prof_ops.origin, "comms_logger.prof_ops"),
            fmt::format("unknown collective '{}'", base::printable(name, 40)),
            "expected all_gather, reduce_scatter, all_reduce, broadcast, barrier or share");
    }
    if (*comms.enabled && !*comms.prof_all && comms.prof_ops->empty()) {
      warn(named(comms.prof_all.origin, "comms_logger.prof_all"),
           "is false and comms_logger.prof_ops empty: nothing is logged");
    }
  }

  void check_precision() {
    const PrecisionPlan& precision = plan_.precision;
    if (precision.fp16.value && device_ == "cpu") {
      warn(named(precision.fp16.origin, "precision.fp16"),
           "fp16 is about 100 times slower than fp32 on a CPU", "use bf16, or no mixed precision");
    }
    if (precision.fp8.value && device_ == "cpu") {
      error(named(precision.fp8.origin, "precision.fp8"), "fp8 needs a GPU", "use bf16");
    }
    if (precision.fp8.value && precision.bf16_master_weights_and_grads.value) {
      error(named(precision.fp8.origin, "precision.fp8"),
            "fp8 keeps masters in fp32, but bf16_master_weights_and_grads is true",
            "leave one of them out");
    }
    if (precision.fp16.value && precision.bf16.value) {
      error(named(precision.bf16.origin, "precision.bf16"),
            fmt::format("is true, and so is fp16{}", at(precision.fp16.origin)),
            "switch one of them off");
    }
    if (precision.amp.value && (precision.fp16.value || precision.bf16.value)) {
      const auto& other = precision.fp16.value ? precision.fp16 : precision.bf16;
      error(named(precision.amp.origin, "precision.amp"),
            fmt::format("is true, and so is {}{}", other.origin.key, at(other.origin)),
            "switch one of them off");
    }
    if (precision.bf16_optimizer_states.value && !precision.bf16_master_weights_and_grads.value) {
      error(named(precision.bf16_optimizer_states.origin, "precision.bf16_optimizer_states"),
            "needs bf16_master_weights_and_grads", "set that to true as well");
    }
    if (precision.bf16_master_weights_and_grads.value && !precision.bf16.value) {
      error(named(precision.bf16_master_weights_and_grads.origin,
                  "precision.bf16_master_weights_and_grads"),
            "needs bf16.enabled", "set that to true as well");
    }
    if (precision.fp16_master_weights_and_grads.value && !precision.fp16.value) {
      error(named(precision.fp16_master_weights_and_grads.origin,
                  "precision.fp16_master_weights_and_grads"),
            "needs fp16.enabled", "set that to true as well");
    }
  }

  void check_stage() {
    const auto& sharding = plan_.sharding;
    if (ranks_ && sharding.factor.value && *ranks_ % *sharding.factor.value != 0) {
      error(named(sharding.factor.origin, "sharding.factor"),
            fmt::format("is {}, expected a divisor of {} ranks: {}", *sharding.factor.value,
                        *ranks_, divisors_of_ranks(*ranks_)));
    }
    const Settings* deepspeed = deepspeed_keys();
    if (deepspeed == nullptr) return;
    const int64_t stage = sharding.stage.value.value_or(0);
    const auto norm = deepspeed->get<bool>("zero_optimization.compute_grad_norm");
    if (!norm.value && stage != 1 && stage != 2) {
      error(named(norm.origin, "zero_optimization.compute_grad_norm"),
            fmt::format("is false, which needs stage 1 or 2, but the stage is {}", stage));
    } else if (!norm.value && plan_.clipping.value > 0) {
      error(
          named(norm.origin, "zero_optimization.compute_grad_norm"),
          fmt::format("is false, but gradient_clipping is {}", format_number(plan_.clipping.value)),
          "set gradient_clipping to 0");
    }
    if (stage > 0 && stage < 3 && sharding.allgather_bucket_size.value % 2 != 0) {
      error(named(sharding.allgather_bucket_size.origin, "sharding.allgather_bucket_size"),
            fmt::format("is {}, expected an even number in stages 1 and 2",
                        sharding.allgather_bucket_size.value));
    }
    const auto elastic = deepspeed->get<bool>("zero_optimization.elastic_checkpoint");
    if (elastic.value && stage == 3) {
      warn(named(elastic.origin, "zero_optimization.elastic_checkpoint"),
           "has no meaning in stage 3; every checkpoint loads on any ranks");
    }
    if (sharding.factor.value && stage != 3 &&
        sharding.factor.origin.key == "zero_optimization.mics_shard_size") {
      error(named(sharding.factor.origin, "sharding.factor"),
            fmt::format("needs stage 3, but the stage is {}", stage));
    }
  }
  const Settings* deepspeed_keys() const {
    if (plan_.deepspeed() != nullptr) return plan_.deepspeed();
    const Settings* settings = plan_.settings();
    return settings != nullptr && settings->family() == Family::deepspeed ? settings : nullptr;
  }

  void check_optimizer() {
    const OptimizerPlan& optimizer = plan_.optimizer;
    static constexpr std::array<std::string_view, 6> kRefused = {
        "zerooneadam", "onebitlamb", "muadam", "muadamw", "musgd", "muon"};
    const std::string type = plain_name(optimizer.type.value);
    if (std::find(kRefused.begin(), kRefused.end(), type) != kRefused.end()) {
      error(named(optimizer.type.origin, "optimizer.type"),
            fmt::format("{} is not supported", optimizer.type.value),
            "use Adam, AdamW, Adagrad, Lamb, Lion, OneBitAdam or SGD");
      return;
    }
    const bool is_sharded = plan_.sharding.stage.value
                                ? *plan_.sharding.stage.value > 0
                                : plan_.sharding.strategy.value != "NO_SHARD";
    if (type == "onebitadam" && is_sharded) {
      error(named(optimizer.type.origin, "optimizer.type"),
            "OneBitAdam works without sharding only", "set zero_optimization.stage to 0");
    }
    const auto& betas = optimizer.betas;
    const bool has_betas = type != "sgd" && type != "adagrad";
    if (has_betas && (betas.value.size() != 2 || betas.value[0] >= 1 || betas.value[1] >= 1)) {
      error(named(betas.origin, "optimizer.betas"),
            fmt::format("is [{}], expected two numbers below 1", fmt::join(betas.value, ", ")));
    }
    if (optimizer.nesterov.value &&
        (optimizer.momentum.value == 0 || optimizer.dampening.value != 0)) {
      error(named(optimizer.nesterov.origin, "optimizer.nesterov"),
            "needs momentum, and no dampening");
    }
    if (type == "lamb" && optimizer.min_coeff.value > optimizer.max_coeff.value) {
      error(named(optimizer.min_coeff.origin, "optimizer.min_coeff"),
            fmt::format("is {}, but max_coeff is {}", format_number(optimizer.min_coeff.value),
                        format_number(optimizer.max_coeff.value)));
    }
  }

  void check_scheduler() {
    const SchedulerPlan& scheduler = plan_.scheduler;
    const std::string& type = scheduler.type.value;
    const bool has_total = type == "WarmupDecayLR" || type == "WarmupCosineLR";
    if (!scheduler.type.origin.is_explicit()) return;
    const Settings* deepspeed = deepspeed_keys();
    // A type given by a flag runs over the steps of the run.
    const bool waits =
        scheduler.type.origin.from == Origin::From::flag ||
        (deepspeed != nullptr && deepspeed->is_auto("scheduler.params.total_num_steps"));
    if (has_total && !scheduler.total_num_steps.value && !waits) {
      error(named(scheduler.type.origin, "scheduler.type"),
            fmt::format("is {}, but total_num_steps is not given", type),
            "add total_num_steps, or \"auto\"");
    }
    if (has_total && scheduler.total_num_steps.value &&
        scheduler.warmup_num_steps.value > *scheduler.total_num_steps.value) {
      const Origin& origin = scheduler.warmup_num_steps.origin.is_explicit()
                                 ? scheduler.warmup_num_steps.origin
                                 : scheduler.total_num_steps.origin;
      warn(named(origin, "scheduler.warmup_num_steps"),
           fmt::format("the warm-up takes {} steps, the whole run {}",
                       scheduler.warmup_num_steps.value, *scheduler.total_num_steps.value));
    }
    check_warmup_rates();
    note_short_warmup();
    if (type != "OneCycle") return;
    if (!scheduler.cycle_min_lr.value || !scheduler.cycle_max_lr.value) {
      error(named(scheduler.type.origin, "scheduler.type"),
            "is OneCycle, but cycle_min_lr and cycle_max_lr are not both "
            "given");
    } else if (*scheduler.cycle_min_lr.value > *scheduler.cycle_max_lr.value) {
      error(
          named(scheduler.cycle_min_lr.origin, "scheduler.cycle_min_lr"),
          fmt::format("is {}, but cycle_max_lr is {}", format_number(*scheduler.cycle_min_lr.value),
                      format_number(*scheduler.cycle_max_lr.value)));
    }
    if (*scheduler.cycle_momentum && *scheduler.cycle_min_mom > *scheduler.cycle_max_mom) {
      const bool is_min = scheduler.cycle_min_mom.origin.is_explicit();
      const auto& said = is_min ? scheduler.cycle_min_mom : scheduler.cycle_max_mom;
      const auto& other = is_min ? scheduler.cycle_max_mom : scheduler.cycle_min_mom;
      error(named(said.origin, is_min ? "scheduler.cycle_min_mom" : "scheduler.cycle_max_mom"),
            fmt::format("is {}, but {} is {}", format_number(*said),
                        is_min ? "cycle_max_mom" : "cycle_min_mom", format_number(*other)));
    }
  }

  // Without warmup_max_lr the optimizer's rate is the upper end.
  void check_warmup_rates() {
    const SchedulerPlan& scheduler = plan_.scheduler;
    const std::string& type = scheduler.type.value;
    if (type != "WarmupLR" && type != "WarmupDecayLR") return;
    const double most = scheduler.warmup_max_lr.value.value_or(plan_.optimizer.lr.value);
    if (scheduler.warmup_min_lr.value <= most) return;
    error(named(scheduler.warmup_min_lr.origin, "scheduler.warmup_min_lr"),
          fmt::format("is {}, but {} is {}", format_number(scheduler.warmup_min_lr.value),
                      scheduler.warmup_max_lr.value ? "warmup_max_lr" : "the optimizer's lr",
                      format_number(most)));
  }

  // DeepSpeed's warm-ups last at least two steps, and both have the lower rate.
  void note_short_warmup() {
    const SchedulerPlan& scheduler = plan_.scheduler;
    const auto& steps = scheduler.warmup_num_steps;
    const bool is_cosine = scheduler.type.value == "WarmupCosineLR";
    // A flag that names the default schedule allows runs without a warm-up.
    const bool is_by_flag = scheduler.type.origin.from == Origin::From::flag;
    if (is_by_flag && scheduler.type.value == SchedulerPlan{}.type.value) return;
    const double low = is_cosine ? scheduler.warmup_min_ratio.value : scheduler.warmup_min_lr.value;
    if (!scheduler.type.value.starts_with("Warmup") || steps.value > 1 || low > 0 ||
        scheduler.warmup_share.value) {
      return;
    }
    const bool was_auto = steps.origin.from == Origin::From::derived;
    warn(named(steps.origin, "scheduler.warmup_num_steps"),
         fmt::format("is {}, but DeepSpeed's warm-ups last at least two steps: the first two have "
                     "a learning rate of 0",
                     was_auto ? fmt::format("\"auto\", which comes to {}", steps.value)
                              : fmt::format("{}", steps.value)),
         "for no warm-up, leave out the scheduler section");
  }

  void check_wrap() {
    const WrapPlanSettings& wrap = plan_.wrap;
    const bool is_explicit = wrap.policy.origin.is_explicit();
    if (is_explicit && wrap.policy.value == "SIZE_BASED_WRAP" && wrap.min_num_params.value == 0) {
      error(named(wrap.policy.origin, "wrap.policy"), "is SIZE_BASED_WRAP, but min_num_params is 0",
            "give a number of parameters, such as 100000000");
    }
    if (wrap.policy.value != "TRANSFORMER_BASED_WRAP" && wrap.classes.origin.is_explicit() &&
        !wrap.classes.value.empty() && wrap.policy.value != "MARKED") {
      warn(named(wrap.classes.origin, "wrap.classes"),
           fmt::format("without effect: the wrap policy is {}", wrap.policy.value));
    }
    // A launcher's variables repeat defaults that the user did not set.
    if (wrap.policy.value != "SIZE_BASED_WRAP" && binds_flags(wrap.min_num_params.origin) &&
        wrap.min_num_params.value > 0 && wrap.policy.value != "MARKED") {
      warn(named(wrap.min_num_params.origin, "wrap.min_num_params"),
           fmt::format("without effect: the wrap policy is {}", wrap.policy.value));
    }
  }

  void check_loading() {
    const ShardingPlan& sharding = plan_.sharding;
    const Settings* settings = plan_.settings();
    const bool is_first =
        settings != nullptr &&
        ((settings->family() == Family::accelerate &&
          settings->variant_of("fsdp_config.") == "1") ||
         (settings->family() == Family::trainer && settings->variant_of("fsdp_config.") == "1"));
    if (is_first && sharding.deferred_loading.value && !sharding.sync_module_states.value &&
        sharding.sync_module_states.origin.is_explicit()) {
      error(named(sharding.sync_module_states.origin, "sharding.sync_module_states"),
            "is false, but cpu_ram_efficient_loading is true", "set sync_module_states to true");
    }
  }

  void check_launch() {
    const LaunchPlan& launch = plan_.launch;
    if (launch.machine_rank.value >= launch.machines.value) {
      error(named(launch.machine_rank.origin, "launch.machine_rank"),
            fmt::format("is {}, expected less than num_machines {}", launch.machine_rank.value,
                        launch.machines.value));
    }
    if (launch.ranks.value && *launch.ranks.value % launch.machines.value != 0) {
      error(named(launch.ranks.origin, "launch.ranks"),
            fmt::format("is {}, expected a multiple of num_machines {}", *launch.ranks.value,
                        launch.machines.value));
    }
    if (launch.device.value == "cpu" && device_ == "cuda") {
      error(named(launch.device.origin, "launch.device"),
            "asks for the CPU, but the run is on CUDA", "use the device cpu, or leave the key out");
    }
    if (launch.machines.value > 1 && !launch.address.value && !launch.hostfile.value) {
      warn(named(launch.machines.origin, "launch.machines"),
           fmt::format("is {}, but main_process_ip is not given", launch.machines.value),
           "set it with --master-addr");
    }
  }

  const Plan& plan_;
  std::optional<int64_t> ranks_;
  const std::optional<std::string>& device_;
  Problems& problems_;
};

}  // namespace

std::string divisors_of_ranks(int64_t ranks) {
  std::vector<int64_t> divisors;
  for (int64_t divisor = 1; divisor <= ranks; ++divisor) {
    if (ranks % divisor == 0) divisors.push_back(divisor);
  }
  return fmt::format("{}", fmt::join(divisors, ", "));
}

void check_plan(const Plan& plan, std::optional<int64_t> ranks,
                const std::optional<std::string>& device, Problems& problems) {
  PlanChecks(plan, ranks, device, problems).run();
}

void note_without_effect(const Plan& plan, const std::optional<std::string>& device,
                         Problems& problems) {
  const auto warn = [&](const Origin& origin, std::string message) {
    problems.warnings.push_back(problem_at(origin, std::move(message)));
  };
  if (plan.xla.enabled.value || plan.xla.version_2.value) {
    warn(plan.xla.enabled.value ? plan.xla.enabled.origin : plan.xla.version_2.origin,
         "this build has no XLA: the run uses the available device");
  }
  note_offload_on_cpu(plan, device, problems);
}

}  // namespace fullshard::config
