#include "fullshard/config/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "fullshard/config/value_check.h"

namespace fullshard {
namespace {

// Dotted paths as nested maps, in their order.
ConfigNode& node_at(ConfigNode& root, std::string_view path) {
  root.kind = NodeKind::map;
  const size_t dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto found = std::find_if(root.members.begin(), root.members.end(),
                            [&](const Member& member) { return member.name == name; });
  if (found == root.members.end()) {
    root.members.push_back({name, 0, {}});
    found = root.members.end() - 1;
  }
  return dot == std::string_view::npos ? found->value : node_at(found->value, path.substr(dot + 1));
}

std::string indented_json(const ConfigNode& node, int depth) {
  if (node.kind != NodeKind::map) return to_json(node);
  if (node.members.empty()) return "{}";
  std::string text = "{\n";
  for (const Member& member : node.members) {
    text += fmt::format("{:{}}{}: {}{}\n", "", 2 * depth + 2, quote_json(member.name),
                        indented_json(member.value, depth + 1),
                        &member == &node.members.back() ? "" : ",");
  }
  return text + fmt::format("{:{}}}}", "", 2 * depth);
}

bool was_auto(const Settings::Entry& entry) {
  return entry.origin.from == Origin::From::derived && entry.key->type.may_be_auto;
}
// Not in the file at all.
bool is_only_derived(const Settings::Entry& entry) {
  return entry.origin.from == Origin::From::derived && entry.origin.line == 0;
}
// Said by the user, and something else than the default: it would be missed.
bool is_missed(const Settings::Entry& entry) {
  if (entry.origin.from == Origin::From::derived || is_auto(entry.value, entry.key->type)) {
    return false;
  }
  const auto fallback = check_value(fallback_of(*entry.key), entry.key->type, true).value;
  return !fallback || !same_value(entry.value, *fallback);
}

class ToDeepSpeed {
 public:
  explicit ToDeepSpeed(const Plan& plan) : plan_(plan) {}

  Conversion run() {
    put_stage();
    const OffloadPlan& offload = plan_.offload;
    if (offload.everything.value && plan_.sharding.strategy.value != "NO_SHARD") {
      put("zero_optimization.offload_optimizer.device", ConfigNode::of_text("cpu"));
      if (stage_ == 3) {
        put("zero_optimization.offload_param.device", ConfigNode::of_text("cpu"));
      } else {
        lose(offload.everything.origin, "DeepSpeed offloads parameters in stage 3 only");
      }
    }
    if (stage_ == 3) {
      put("zero_optimization.stage3_gather_16bit_weights_on_model_save",
          ConfigNode::of_boolean(plan_.checkpoint.state_dict_type.value == "FULL_STATE_DICT"));
    }
    if (plan_.precision.fp16.value) put("fp16.enabled", ConfigNode::of_boolean(true));
    if (plan_.precision.bf16.value) put("bf16.enabled", ConfigNode::of_boolean(true));
    for (const char* key : {"train_batch_size", "train_micro_batch_size_per_gpu",
                            "gradient_accumulation_steps", "gradient_clipping"}) {
      put(key, ConfigNode::of_text("auto"));
    }
    lose_the_rest();
    result_.text = indented_json(root_, 0) + "\n";
    return std::move(result_);
  }

 private:
  void put(std::string_view path, ConfigNode value) { node_at(root_, path) = std::move(value); }
  void lose(const Origin& origin, std::string_view why) {
    result_.notes.push_back(fmt::format("{}: {}", origin.key, why));
  }

  void put_stage() {
    const ShardingPlan& sharding = plan_.sharding;
    const std::string& strategy = sharding.strategy.value;
    const bool keeps = sharding.reshard_after_forward.value == std::optional(false);
    stage_ = strategy == "NO_SHARD"                                                     ? 0
             : strategy == "SHARD_GRAD_OP" || strategy == "HYBRID_SHARD_ZERO2" || keeps ? 2
                                                                                        : 3;
    put("zero_optimization.stage", ConfigNode::of_integer(stage_));
    if (stage_ == 2) {
      lose(sharding.strategy.origin.is_explicit() ? sharding.strategy.origin
                                                  : sharding.reshard_after_forward.origin,
           "becomes stage 2, which keeps parameters whole between steps too");
    }
    if (strategy.starts_with("HYBRID")) {
      lose(sharding.strategy.origin, "DeepSpeed has no hybrid strategy; the shards span all ranks");
    }
  }

  // What an FSDP file says and DeepSpeed's format has no key for.
  void lose_the_rest() {
    if (plan_.settings() == nullptr) return;
    static const std::set<std::string_view> kCarried = {"distributed_type",
                                                        "mixed_precision",
                                                        "compute_environment",
                                                        "fsdp_config.fsdp_sharding_strategy",
                                                        "fsdp_config.fsdp_reshard_after_forward",
                                                        "fsdp_config.fsdp_offload_params",
                                                        "fsdp_config.fsdp_state_dict_type",
                                                        "fsdp_config.fsdp_version",
                                                        "fp16",
                                                        "fsdp",
                                                        "fsdp_config.version",
                                                        "fsdp_config.reshard_after_forward",
                                                        "fsdp_config.cpu_offload",
                                                        "fsdp_config.state_dict_type"};
    for (const auto& [path, entry] : plan_.settings()->entries()) {
      if (kCarried.contains(path) || !is_missed(entry)) continue;
      const bool is_launch = entry.key->consumer == "launch";
      const bool is_recompute = entry.key->consumer == "recompute";
      lose(entry.origin, is_launch      ? "is said on DeepSpeed's command line"
                         : is_recompute ? "is switched on in the program with DeepSpeed"
                                        : "has no DeepSpeed key");
    }
  }

  const Plan& plan_;
  int64_t stage_ = 3;
  ConfigNode root_;
  Conversion result_;
};

class ToAccelerate {
 public:
  explicit ToAccelerate(const Plan& plan, const Settings& deepspeed)
      : plan_(plan), deepspeed_(deepspeed) {}

  Conversion run() {
    const int64_t stage = plan_.sharding.stage.value.value_or(0);
    static constexpr std::array kStrategies = {"NO_SHARD", "SHARD_GRAD_OP", "SHARD_GRAD_OP",
                                               "FULL_SHARD"};
    static constexpr std::array kTypes = {"MULTI_GPU", "FSDP", "FSDP", "FSDP"};
    line("compute_environment", "LOCAL_MACHINE");
    line("distributed_type", kTypes[static_cast<size_t>(stage)]);
    line("mixed_precision", plan_.precision.bf16.value   ? "bf16"
                            : plan_.precision.fp16.value ? "fp16"
                                                         : "'no'");
    if (plan_.launch.ranks.value) line("num_processes", std::to_string(*plan_.launch.ranks.value));
    if (stage > 0) {
      const bool has_everything = plan_.offload.parameters.device.value == "cpu" &&
                                  plan_.offload.optimizer.device.value == "cpu";
      result_.text += "fsdp_config:\n";
      line("  fsdp_version", "1");
      line("  fsdp_sharding_strategy", kStrategies[static_cast<size_t>(stage)]);
      line("  fsdp_offload_params", has_everything ? "true" : "false");
      line("  fsdp_backward_prefetch",
           plan_.sharding.overlap_comm.value ? "BACKWARD_PRE" : "NO_PREFETCH");
      line("  fsdp_state_dict_type",
           plan_.checkpoint.gather_16bit_weights.value ? "FULL_STATE_DICT" : "SHARDED_STATE_DICT");
      line("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP");
      if (has_everything)
        carried_.insert({"zero_optimization.offload_param.device",
                         "zero_optimization.offload_optimizer.device"});
    }
    if (stage == 1) {
      lose("zero_optimization.stage",
           "FSDP has no strategy for stage 1; SHARD_GRAD_OP shards more");
    } else if (stage == 2) {
      lose("zero_optimization.stage",
           "becomes SHARD_GRAD_OP, which shards parameters between steps too");
    }
    lose_the_rest();
    return std::move(result_);
  }

 private:
  void line(std::string_view key, std::string_view value) {
    result_.text += fmt::format("{}: {}\n", key, value);
  }
  void lose(std::string_view key, std::string_view why) {
    result_.notes.push_back(fmt::format("{}: {}", key, why));
  }

  void lose_the_rest() {
    for (const auto& [path, entry] : deepspeed_.entries()) {
      if (carried_.contains(path) || !is_missed(entry)) continue;
      if (path == "scheduler.type" && entry.value.text.starts_with("Warmup")) {
        lose(path,
             "has no Accelerate key; the Trainer's 'linear' and 'constant_with_warmup' are "
             "WarmupDecayLR and WarmupLR with warmup_type linear only");
        continue;
      }
      lose(path, entry.key->consumer == "batch" || entry.key->consumer == "clipping" ||
                         entry.key->consumer == "optimizer" || entry.key->consumer == "scheduler"
                     ? "has no Accelerate key; it is said in the program"
                     : "has no Accelerate key");
    }
  }

  const Plan& plan_;
  const Settings& deepspeed_;
  std::set<std::string, std::less<>> carried_ = {
      "zero_optimization.stage", "zero_optimization.overlap_comm",
      "zero_optimization.stage3_gather_16bit_weights_on_model_save", "fp16.enabled",
      "bf16.enabled"};
  Conversion result_;
};

}  // namespace

std::string to_json_document(const Settings& settings) {
  ConfigNode root;
  root.kind = NodeKind::map;
  for (const SchemaKey* key : settings.schema().keys()) {
    const Settings::Entry* entry = settings.find(key->path);
    if (entry == nullptr || is_only_derived(*entry)) continue;
    node_at(root, key->path) = was_auto(*entry) ? ConfigNode::of_text("auto") : entry->value;
  }
  return indented_json(root, 0) + "\n";
}

Conversion convert_to_deepspeed(const Plan& plan) {
  const Settings* settings = plan.settings();
  if (settings != nullptr && settings->family() == Family::deepspeed) {
    return {.text = to_json_document(*settings)};
  }
  if (plan.deepspeed() == nullptr) return ToDeepSpeed(plan).run();
  Settings inner = *plan.deepspeed();
  if (!plan.batch.micro.origin.is_explicit() && !plan.batch.global.origin.is_explicit()) {
    inner.put("train_micro_batch_size_per_gpu", ConfigNode::of_text("auto"), {});
  }
  Conversion result{.text = to_json_document(inner)};
  for (const auto& [path, entry] : settings->entries()) {
    if (entry.key->consumer == "launch" && is_missed(entry)) {
      result.notes.push_back(fmt::format("{}: is said on DeepSpeed's command line", path));
    }
  }
  return result;
}

Conversion convert_to_accelerate(const Plan& plan) {
  const Settings* settings = plan.settings();
  if (settings != nullptr && settings->family() == Family::deepspeed) {
    return ToAccelerate(plan, *settings).run();
  }
  if (plan.deepspeed() != nullptr) return ToAccelerate(plan, *plan.deepspeed()).run();
  Conversion result;
  const bool is_plain = plan.sharding.strategy.value == "NO_SHARD";
  const auto line = [&](std::string_view key, std::string_view value) {
    result.text += fmt::format("{}: {}\n", key, value);
  };
  line("compute_environment", "LOCAL_MACHINE");
  line("distributed_type", is_plain ? "MULTI_GPU" : "FSDP");
  line("mixed_precision", plan.precision.bf16.value   ? "bf16"
                          : plan.precision.fp16.value ? "fp16"
                                                      : "'no'");
  if (plan.launch.ranks.value) line("num_processes", std::to_string(*plan.launch.ranks.value));
  if (is_plain) return result;
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const bool keeps = plan.sharding.reshard_after_forward.value == std::optional(false);
  result.text += "fsdp_config:\n";
  line("  fsdp_version", "1");
  line("  fsdp_sharding_strategy", keeps && plan.sharding.strategy.value == "FULL_SHARD"
                                       ? "SHARD_GRAD_OP"
                                       : plan.sharding.strategy.value);
  line("  fsdp_offload_params", truth(plan.offload.everything.value));
  line("  fsdp_backward_prefetch", plan.sharding.backward_prefetch.value);
  line("  fsdp_forward_prefetch", truth(plan.sharding.forward_prefetch.value));
  line("  fsdp_auto_wrap_policy", plan.wrap.policy.value);
  if (!plan.wrap.classes.value.empty()) {
    line("  fsdp_transformer_layer_cls_to_wrap",
         fmt::format("{}", fmt::join(plan.wrap.classes.value, ",")));
  }
  if (plan.wrap.policy.value == "SIZE_BASED_WRAP") {
    line("  fsdp_min_num_params", std::to_string(plan.wrap.min_num_params.value));
  }
  line("  fsdp_state_dict_type", plan.checkpoint.state_dict_type.value);
  line("  fsdp_activation_checkpointing", truth(plan.recompute.enabled.value));
  line("  fsdp_cpu_ram_efficient_loading", truth(plan.sharding.deferred_loading.value));
  line("  fsdp_sync_module_states",
       truth(plan.sharding.sync_module_states.value || plan.sharding.deferred_loading.value));
  line("  fsdp_use_orig_params", "true");
  return result;
}

}  // namespace fullshard
