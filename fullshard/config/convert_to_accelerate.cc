// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "fullshard/config/convert.h"

namespace fullshard::config {
namespace {

std::string truth(bool value) { return value ? "true" : "false"; }

// The parts that both kinds of source share: the top of the file and groups of ranks.
class AccelerateFile {
 public:
  AccelerateFile(const Plan& plan, std::optional<int64_t> ranks) : plan_(plan), ranks_(ranks) {
    // Version 1 shards over all ranks, or over those of one machine.
    const auto& factor = plan.sharding.factor.value;
    has_groups_ = factor && ranks && *ranks % *factor == 0;
  }

  bool is_second() const { return has_groups_; }

  void begin(bool shards) {
    line("compute_environment", "LOCAL_MACHINE");
    const bool is_cpu = plan_.launch.device.value == "cpu";
    // Accelerate refuses MULTI_GPU on one rank.
    line("distributed_type", shards                   ? "FSDP"
                             : ranks_.value_or(1) < 2 ? "'NO'"
                             : is_cpu                 ? "MULTI_CPU"
                                                      : "MULTI_GPU");
    line("mixed_precision", plan_.precision.fp8.value    ? "fp8"
                            : plan_.precision.bf16.value ? "bf16"
                            : plan_.precision.fp16.value ? "fp16"
                                                         : "'no'");
    if (plan_.launch.machines.value > 1) put_machines();
    line("num_processes", fmt::format("{}", ranks_.value_or(1)));
    if (!ranks_) {
      lose("num_processes", "the file does not say how many ranks; 1 is written: give --ranks");
    }
    if (is_cpu) line("use_cpu", "true");
  }
  void put_machines() {
    const LaunchPlan& launch = plan_.launch;
    line("num_machines", fmt::format("{}", launch.machines.value));
    line("machine_rank", fmt::format("{}", launch.machine_rank.value));
    if (launch.address.value) line("main_process_ip", *launch.address.value);
    if (launch.port.value) line("main_process_port", fmt::format("{}", *launch.port.value));
  }
  void begin_fsdp(std::string_view strategy, bool releases) {
    result_.text += "fsdp_config:\n";
    line("  fsdp_version", is_second() ? "2" : "1");
    if (is_second()) {
      line("  fsdp_reshard_after_forward", truth(releases));
    } else {
      line("  fsdp_sharding_strategy", strategy);
    }
  }
  // A line for a key that version 2 does not have.
  void line_of_first(std::string_view key, std::string_view value) {
    if (!is_second()) line(key, value);
  }
  void end_groups() {
    if (!is_second()) return;
    const int64_t shards = *plan_.sharding.factor.value;
    result_.text += "parallelism_config:\n";
    line("  parallelism_config_dp_replicate_size", fmt::format("{}", *ranks_ / shards));
    line("  parallelism_config_dp_shard_size", fmt::format("{}", shards));
  }

  void line(std::string_view key, std::string_view value) {
    result_.text += fmt::format("{}: {}\n", key, value);
  }
  void lose(std::string_view key, std::string_view why) {
    result_.notes.push_back(fmt::format("{}: {}", key, why));
  }
  Conversion take() { return std::move(result_); }

 private:
  const Plan& plan_;
  std::optional<int64_t> ranks_;
  bool has_groups_ = false;
  Conversion result_;
};

std::optional<int64_t> ranks_for(const Plan& plan, const Settings& deepspeed) {
  return plan.launch.ranks.value ? plan.launch.ranks.value : ranks_of_batch(deepspeed);
}

class FromDeepSpeed {
 public:
  FromDeepSpeed(const Plan& plan, const Settings& deepspeed)
      : plan_(plan), deepspeed_(deepspeed), file_(plan, ranks_for(plan, deepspeed)) {}

  Conversion run() {
    const int64_t stage = plan_.sharding.stage.value.value_or(0);
    file_.begin(stage > 0);
    if (stage > 0) put_fsdp(stage);
    note_stage(stage);
    lose_the_rest();
    return file_.take();
  }

 private:
  void put_fsdp(int64_t stage) {
    const bool has_everything = plan_.offload.parameters.device.value == "cpu" &&
                                plan_.offload.optimizer.device.value == "cpu";
    file_.begin_fsdp(strategy_for(stage), stage == 3);
    file_.line("  fsdp_offload_params", truth(has_everything));
    file_.line_of_first("  fsdp_backward_prefetch",
                        plan_.sharding.overlap_comm.value ? "BACKWARD_PRE" : "NO_PREFETCH");
    file_.line("  fsdp_state_dict_type", plan_.checkpoint.gather_16bit_weights.value
                                             ? "FULL_STATE_DICT"
                                             : "SHARDED_STATE_DICT");
    file_.line("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
    file_.end_groups();
    if (has_everything) {
      carried_.insert(
          {"zero_optimization.offload_param.device", "zero_optimization.offload_optimizer.device"});
    }
  }
  std::string_view strategy_for(int64_t stage) {
    if (stage < 3) return "SHARD_GRAD_OP";
    if (!plan_.sharding.factor.value || file_.is_second()) return "FULL_SHARD";
    file_.lose("zero_optimization.mics_shard_size",
               "becomes HYBRID_SHARD, which shards over the ranks of one machine; with --ranks it "
               "becomes groups of that many");
    return "HYBRID_SHARD";
  }

  void note_stage(int64_t stage) {
    if (stage == 1) {
      file_.lose("zero_optimization.stage",
                 "FSDP has no strategy for stage 1; SHARD_GRAD_OP shards more");
    } else if (stage == 2) {
      file_.lose("zero_optimization.stage",
                 "becomes SHARD_GRAD_OP, which shards parameters between steps too");
    }
  }

  void lose_the_rest() {
    for (const auto& [path, entry] : deepspeed_.entries()) {
      if (carried_.contains(path) || !is_missed(entry)) continue;
      if (path == "scheduler.type" && entry.value.text.starts_with("Warmup")) {
        file_.lose(path,
                   "has no Accelerate key; the Trainer's 'linear' and 'constant_with_warmup' are "
                   "WarmupDecayLR and WarmupLR with warmup_type linear only");
        continue;
      }
      const std::string_view consumer = entry.key->consumer;
      const bool is_programs = consumer == "batch" || consumer == "clipping" ||
                               consumer == "optimizer" || consumer == "scheduler";
      file_.lose(path, is_programs ? "has no Accelerate key; it is set in the program"
                                   : "has no Accelerate key");
    }
  }

  const Plan& plan_;
  const Settings& deepspeed_;
  AccelerateFile file_;
  std::set<std::string, std::less<>> carried_ = {
      "zero_optimization.stage",
      "zero_optimization.overlap_comm",
      "zero_optimization.stage3_gather_16bit_weights_on_model_save",
      "zero_optimization.mics_shard_size",
      "fp16.enabled",
      "bf16.enabled"};
};

void put_wrap(const WrapPlanSettings& wrap, AccelerateFile& file) {
  file.line("  fsdp_auto_wrap_policy", wrap.policy.value);
  if (!wrap.classes.value.empty()) {
    file.line("  fsdp_transformer_layer_cls_to_wrap",
              fmt::format("{}", fmt::join(wrap.classes.value, ",")));
  }
  if (wrap.policy.value == "SIZE_BASED_WRAP") {
    file.line("  fsdp_min_num_params", fmt::format("{}", wrap.min_num_params.value));
  }
}

// From an FSDP Plan, by Accelerate's keys or the Trainer's.
Conversion from_fsdp(const Plan& plan) {
  AccelerateFile file(plan, plan.launch.ranks.value);
  const ShardingPlan& sharding = plan.sharding;
  const bool is_plain = sharding.strategy.value == "NO_SHARD";
  file.begin(!is_plain);
  if (is_plain) return file.take();
  const bool keeps = sharding.reshard_after_forward.value == std::optional(false) ||
                     sharding.strategy.value == "SHARD_GRAD_OP";
  file.begin_fsdp(
      keeps && sharding.strategy.value == "FULL_SHARD" ? "SHARD_GRAD_OP" : sharding.strategy.value,
      !keeps);
  file.line("  fsdp_offload_params", truth(plan.offload.everything.value));
  file.line_of_first("  fsdp_backward_prefetch", sharding.backward_prefetch.value);
  file.line("  fsdp_forward_prefetch", truth(sharding.forward_prefetch.value));
  put_wrap(plan.wrap, file);
  file.line("  fsdp_state_dict_type", plan.checkpoint.state_dict_type.value);
  file.line("  fsdp_activation_checkpointing", truth(plan.recompute.enabled.value));
  file.line("  fsdp_cpu_ram_efficient_loading", truth(sharding.deferred_loading.value));
  file.line_of_first("  fsdp_sync_module_states",
                     truth(sharding.sync_module_states.value || sharding.deferred_loading.value));
  file.line_of_first("  fsdp_use_orig_params", "true");
  file.end_groups();
  if (sharding.factor.value && !file.is_second()) {
    file.lose(sharding.factor.origin.key, "needs the number of ranks: give --ranks");
  }
  return file.take();
}

}  // namespace

std::string accelerate_text_naming(const std::string& deepspeed_file, std::optional<int64_t> ranks,
                                   bool on_cpu) {
  return fmt::format(
      "compute_environment: LOCAL_MACHINE\n"
      "distributed_type: DEEPSPEED\n"
      "deepspeed_config:\n"
      "  deepspeed_config_file: {}\n"
      "num_machines: 1\n"
      "num_processes: {}\n"
      "use_cpu: {}\n",
      quote_json(deepspeed_file), ranks.value_or(1), truth(on_cpu));
}

Conversion convert_to_accelerate(const Plan& plan) {
  const Settings* settings = plan.settings();
  if (settings != nullptr && settings->family() == Family::deepspeed) {
    return FromDeepSpeed(plan, *settings).run();
  }
  if (plan.deepspeed() != nullptr) return FromDeepSpeed(plan, *plan.deepspeed()).run();
  return from_fsdp(plan);
}

}  // namespace fullshard::config
