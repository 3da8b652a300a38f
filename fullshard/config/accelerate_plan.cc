// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "fullshard/config/checks.h"
#include "fullshard/config/document/reader.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/sharding_flags.h"

namespace fullshard::config {
namespace {

// Keys of deepspeed_config and what DeepSpeed calls them.
struct InnerKey {
  std::string_view accelerate;
  std::string_view deepspeed;
};
constexpr std::array kInner = {
    InnerKey{"zero_stage", "zero_optimization.stage"},
    InnerKey{"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    InnerKey{"offload_param_device", "zero_optimization.offload_param.device"},
    InnerKey{"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    InnerKey{"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    InnerKey{"gradient_accumulation_steps", "gradient_accumulation_steps"},
    InnerKey{"gradient_clipping", "gradient_clipping"},
    InnerKey{"zero3_save_16bit_model",
             "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
};

}  // namespace

void PlanMaker::fill_from_accelerate(Plan& plan, Settings& settings) {
  // The launcher repeats what the file says.
  if (options_.ranks && settings.get<int64_t>("num_processes").value != *options_.ranks) {
    settings.put("num_processes", ConfigNode::of_integer(*options_.ranks),
                 {.from = Origin::From::flag, .key = "num_processes", .note = "--ranks"});
  }
  fill_launch(plan, settings);
  const auto type = settings.get<std::string>("distributed_type");
  if (!settings.has("distributed_type") && !names_type_) {
    error({.file = file_, .key = "distributed_type"}, "is missing, expected FSDP, DEEPSPEED or NO",
          "add distributed_type: FSDP");
  }
  if (type.value == "DEEPSPEED") {
    Settings inner = deepspeed_of_accelerate(settings);
    left_flags_ = apply_flags(inner, left_flags_, problems_);
    show_flags(inner, settings);
    fill_from_deepspeed(plan, std::move(inner));
    show_resolved(settings, *plan.deepspeed_);
    plan.sharding.deferred_loading = settings.get<bool>("deepspeed_config.zero3_init_flag");
    add_expert_layers(plan, settings);
  } else if (type.value == "FSDP" || type.value == "XLA") {
    fill_fsdp(plan, settings);
  } else if (type.value == "NO" || type.value == "MULTI_CPU" || type.value == "MULTI_GPU") {
    plan.sharding.strategy = {"NO_SHARD", type.origin};
  } else {
    error(type.origin, fmt::format("{} is not supported", type.value),
          "use FSDP, DEEPSPEED, MULTI_CPU, MULTI_GPU or NO");
  }
  if (type.value == "XLA") plan.xla.enabled = {true, type.origin};
  fill_xla(plan, settings);
  fill_parallelism(plan, settings);
  const auto precision = settings.get<std::string>("mixed_precision");
  const auto old = settings.get<bool>("fp16");
  if (old.origin.is_explicit()) {
    warn(old.origin,
         fmt::format("is the old form of mixed_precision: {}", old.value ? "fp16" : "no"));
  }
  if (precision.value == "fp8") fill_fp8(plan, settings, precision.origin);
  if (old.value && precision.origin.is_explicit() && precision.value != "fp16") {
    error(old.origin, fmt::format("is true, but mixed_precision is {}", precision.value),
          "keep one of them");
  }
  if (type.value == "DEEPSPEED") return;  // DeepSpeed's own keys set the precision
  if (precision.value == "fp16") plan.precision.fp16 = {true, precision.origin};
  if (precision.value == "bf16" || precision.value == "fp8")
    plan.precision.bf16 = {true, precision.origin};
  if (old.value && !precision.origin.is_explicit()) {
    plan.precision.fp16 = old;
    Origin derived = old.origin;
    derived.from = Origin::From::derived;
    settings.put("mixed_precision", ConfigNode::of_text("fp16"), std::move(derived));
  }
}

void PlanMaker::fill_fp8(Plan& plan, const Settings& settings, const Origin& origin) {
  plan.precision.fp8 = {true, origin};
  const auto format = settings.get<std::string>("fp8_config.format");
  if (!format.origin.is_explicit()) return;
  if (format.value == "E5M2") {
    return error(format.origin, "E5M2 for weights and activations is not supported",
                 "use E4M3, or HYBRID for gradients in E5M2");
  }
  plan.precision.fp8_format = format;
}

// Accelerate's key for DeepSpeed's leaf modules.
void PlanMaker::add_expert_layers(Plan& plan, const Settings& settings) {
  const auto experts =
      settings.get<std::vector<std::string>>("deepspeed_config.deepspeed_moe_layer_cls_names");
  if (experts.value.empty()) return;
  std::vector<std::string>& leaves = plan.wrap.leaves.value;
  for (std::string& name : split_names(experts.value)) leaves.push_back(std::move(name));
  plan.wrap.leaves.origin = experts.origin;
}

// Shows DeepSpeed's keys that flags set under Accelerate's names for them.
void PlanMaker::show_flags(const Settings& inner, Settings& settings) {
  for (const InnerKey& key : kInner) {
    const Settings::Entry* entry = inner.find(key.deepspeed);
    if (entry == nullptr || entry->origin.from != Origin::From::flag) continue;
    settings.put(fmt::format("deepspeed_config.{}", key.accelerate), entry->value, entry->origin);
  }
}

void PlanMaker::fill_launch(Plan& plan, const Settings& settings) {
  LaunchPlan& launch = plan.launch;
  const auto ranks = settings.get<int64_t>("num_processes");
  if (ranks.value > 0) launch.ranks = {ranks.value, ranks.origin};
  if (ranks.value == 0) error(ranks.origin, "is 0, expected -1 or a number of ranks");
  launch.machines = settings.get<int64_t>("num_machines");
  launch.machine_rank = settings.get<int64_t>("machine_rank");
  launch.address = settings.get_optional<std::string>("main_process_ip");
  launch.port = settings.get_optional<int64_t>("main_process_port");
  if (const auto cpu = settings.get<bool>("use_cpu"); cpu.value) {
    launch.device = {"cpu", cpu.origin};
  } else if (settings.get<std::string>("distributed_type").value == "MULTI_CPU") {
    launch.device = {"cpu", settings.find("distributed_type")->origin};
  }
  launch.gpu_ids = settings.get<std::string>("gpu_ids");
  launch.bind_cores = settings.get<bool>("enable_cpu_affinity");
  launch.hostfile = settings.get_optional<std::string>("deepspeed_config.deepspeed_hostfile");
  if (!launch.hostfile.value) {
    launch.hostfile = settings.get_optional<std::string>("mpirun_config.mpirun_hostfile");
  }
  launch.include =
      settings.get_optional<std::string>("deepspeed_config.deepspeed_inclusion_filter");
  launch.exclude =
      settings.get_optional<std::string>("deepspeed_config.deepspeed_exclusion_filter");
}

void PlanMaker::fill_fsdp(Plan& plan, Settings& settings) {
  const auto flag = [&](std::string_view name) {
    return settings.get<bool>(fmt::format("fsdp_config.fsdp_{}", name));
  };
  const bool is_second = settings.get<int64_t>("fsdp_config.fsdp_version").value == 2;
  ShardingPlan& sharding = plan.sharding;
  const auto strategy = settings.get<std::string>("fsdp_config.fsdp_sharding_strategy");
  const Settings::Entry* reshard = settings.find("fsdp_config.fsdp_reshard_after_forward");
  sharding.strategy = strategy;
  if (is_second) {
    if (strategy.origin.is_explicit()) {
      if (strategy.origin.from != Origin::From::flag) {
        warn(strategy.origin, "Accelerate does not read it in version 2; honoured as meant");
      }
    }
    // The strategy's own rule holds unless version 2's key is given.
    if (reshard != nullptr || !strategy.origin.is_explicit()) {
      const auto value = settings.get<bool>("fsdp_config.fsdp_reshard_after_forward");
      sharding.reshard_after_forward = {value.value, value.origin};
      if (strategy.origin.is_explicit() && !agrees_with_release(strategy.value, value.value)) {
        error(value.origin,
              fmt::format("is {}, but fsdp_sharding_strategy is {}", value.value, strategy.value),
              "keep one of them");
      }
    }
  } else if (reshard != nullptr) {
    warn(reshard->origin,
         "Accelerate does not read it in version 1; honoured as meant, as the strategy");
    if (strategy.origin.is_explicit() && strategy.value != reshard->value.text) {
      error(reshard->origin,
            fmt::format("is {}, but fsdp_sharding_strategy is {}", reshard->value.text,
                        strategy.value),
            "keep one of them");
    }
    sharding.strategy = {reshard->value.text, reshard->origin};
    Origin derived = reshard->origin;
    derived.from = Origin::From::derived;
    settings.put("fsdp_config.fsdp_sharding_strategy", reshard->value, std::move(derived));
  }
  for (const std::string_view name : {"use_orig_params", "sync_module_states"}) {
    const auto value = flag(name);
    if (is_second && value.origin.is_explicit()) {
      warn(value.origin, "is not a setting of version 2");
    }
  }
  sharding.backward_prefetch = settings.get<std::string>("fsdp_config.fsdp_backward_prefetch");
  if (is_second && sharding.backward_prefetch.origin.is_explicit()) {
    warn(sharding.backward_prefetch.origin,
         "Accelerate does not read it in version 2; honoured as meant");
  }
  sharding.forward_prefetch = flag("forward_prefetch");
  sharding.limit_all_gathers = flag("limit_all_gathers");
  sharding.sync_module_states = flag("sync_module_states");
  sharding.deferred_loading = flag("cpu_ram_efficient_loading");
  plan.wrap.policy = settings.get<std::string>("fsdp_config.fsdp_auto_wrap_policy");
  auto classes =
      settings.get<std::vector<std::string>>("fsdp_config.fsdp_transformer_layer_cls_to_wrap");
  plan.wrap.classes = {split_names(classes.value), classes.origin};
  plan.wrap.min_num_params = settings.get<int64_t>("fsdp_config.fsdp_min_num_params");
  plan.wrap.ignored_modules = settings.get<std::string>("fsdp_config.fsdp_ignored_modules");
  plan.offload.everything = flag("offload_params");
  plan.recompute.enabled = flag("activation_checkpointing");
  plan.recompute.offload = flag("activation_checkpointing_offload");
  plan.checkpoint.state_dict_type = settings.get<std::string>("fsdp_config.fsdp_state_dict_type");
}

void PlanMaker::fill_parallelism(Plan& plan, const Settings& settings) {
  const std::string prefix = "parallelism_config.parallelism_config_dp_";
  const auto shards = settings.get<int64_t>(prefix + "shard_size");
  const auto copies = settings.get<int64_t>(prefix + "replicate_size");
  if (shards.origin.is_explicit()) plan.sharding.factor = {shards.value, shards.origin};
  if (!copies.origin.is_explicit() && !shards.origin.is_explicit()) return;
  const Origin& origin = shards.origin.is_explicit() ? shards.origin : copies.origin;
  if (settings.get<int64_t>("fsdp_config.fsdp_version").value != 2) {
    error(origin, "needs fsdp_version 2", "add fsdp_config.fsdp_version: 2");
  }
  const auto ranks = options_.ranks ? options_.ranks : plan.launch.ranks.value;
  if (ranks && shards.origin.is_explicit() && *ranks % shards.value == 0 &&
      shards.value * copies.value != *ranks) {
    error(origin,
          fmt::format("is {}, times dp_replicate_size {} that is {} ranks, but there are {}",
                      shards.value, copies.value, shards.value * copies.value, *ranks));
  }
  if (!shards.origin.is_explicit() && ranks && copies.value > 0) {
    if (*ranks % copies.value != 0) {
      error(origin, fmt::format("is {}, expected a divisor of {} ranks: {}", copies.value, *ranks,
                                divisors_of_ranks(*ranks)));
    } else {
      plan.sharding.factor = {*ranks / copies.value, copies.origin};
    }
  }
}

Settings PlanMaker::deepspeed_of_accelerate(const Settings& settings) {
  const Settings::Entry* file = settings.find("deepspeed_config.deepspeed_config_file");
  Settings inner = file != nullptr ? read_deepspeed_file(settings) : Settings(Family::deepspeed);
  const auto put = [&](std::string_view path, const ConfigNode& value, const Origin& origin) {
    if (file == nullptr) {
      inner.put(path, value, origin);
    } else if (inner.is_auto(path) || (!inner.has(path) && origin.from == Origin::From::flag)) {
      inner.put(path, value, origin);
    } else if (!inner.has(path)) {
      error(origin, "is given in addition to deepspeed_config_file",
            fmt::format("write it into {}", file->value.text));
    } else if (!same_value(inner.find(path)->value, value)) {
      error(origin,
            fmt::format("is {}, but {} says {}", value.text, path, inner.find(path)->value.text),
            fmt::format("keep the one in {}", file->value.text));
    }
  };
  for (const InnerKey& key : kInner) {
    const std::string path = fmt::format("deepspeed_config.{}", key.accelerate);
    const Settings::Entry* entry = settings.find(path);
    if (entry != nullptr) {
      put(key.deepspeed, entry->value, entry->origin);
    } else if (file == nullptr && key.accelerate == "zero_stage") {
      inner.put(key.deepspeed, ConfigNode::of_integer(2), {.key = path});
    }
  }
  if (const Settings::Entry* precision = settings.find("mixed_precision")) {
    fill_inner_precision(inner, *precision);
  }
  return inner;
}

void PlanMaker::show_resolved(Settings& settings, const Settings& deepspeed) {
  for (const InnerKey& key : kInner) {
    const std::string path = fmt::format("deepspeed_config.{}", key.accelerate);
    const Settings::Entry* resolved = deepspeed.find(key.deepspeed);
    if (settings.is_auto(path) && resolved != nullptr) {
      settings.put(path, resolved->value, resolved->origin);
    }
  }
}

void PlanMaker::fill_inner_precision(Settings& inner, const Settings::Entry& precision) {
  // fp8 is bf16 with the products of blocks in 8 bits.
  const std::string name = precision.value.text == "fp8" ? "bf16" : precision.value.text;
  const bool is_silent = !inner.has("fp16.enabled") && !inner.has("bf16.enabled");
  for (const std::string_view dtype : {"fp16", "bf16"}) {
    const std::string path = fmt::format("{}.enabled", dtype);
    const Settings::Entry* entry = inner.find(path);
    if (inner.is_auto(path) || (is_silent && name == dtype)) {
      inner.put(path, ConfigNode::of_boolean(name == dtype), precision.origin);
    } else if (entry != nullptr && entry->value.boolean != (name == dtype) &&
               precision.origin.from == Origin::From::flag) {
      problems_.errors.push_back(
          contradiction(entry->origin, entry->value.text, {precision.origin.note, name}));
    } else if (entry != nullptr && entry->value.boolean != (name == dtype)) {
      error(precision.origin,
            fmt::format("is {}, but {} is {} in {}", name, path, entry->value.boolean,
                        entry->origin.text()),
            "keep one of them");
    }
  }
}

Settings PlanMaker::read_deepspeed_file(const Settings& settings) {
  const Settings::Entry& entry = *settings.find("deepspeed_config.deepspeed_config_file");
  // As in Accelerate, relative to the current folder; else next to the file that names it.
  std::string path = entry.value.text;
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    const auto beside = std::filesystem::path(entry.origin.file).parent_path() / path;
    if (std::filesystem::exists(beside, ignored)) path = beside.string();
  }
  try {
    const ConfigText source = read_config_file(path);
    const auto root = read_config(source.text, source.name, problems_);
    if (!root) return Settings(Family::deepspeed);
    return read_settings(*root, source.name, Family::deepspeed,
                         {.allow_unknown = options_.allow_unknown}, problems_);
  } catch (const Error& failure) {
    error(entry.origin, failure.what());
    return Settings(Family::deepspeed);
  }
}

}  // namespace fullshard::config
