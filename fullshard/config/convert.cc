// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

// The node at a dotted path in nested maps; missing maps are added in order.
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
// Whether the file does not have the key at all.
bool is_only_derived(const Settings::Entry& entry) {
  return entry.origin.from == Origin::From::derived && entry.origin.line == 0;
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
    const bool has_groups = strategy.starts_with("HYBRID") || sharding.factor.value;
    stage_ = strategy == "NO_SHARD"                                  ? 0
             : (strategy == "SHARD_GRAD_OP" || keeps) && !has_groups ? 2
                                                                     : 3;
    put("zero_optimization.stage", ConfigNode::of_integer(stage_));
    put_groups();
    if (stage_ == 2) {
      lose(sharding.strategy.origin.is_explicit() ? sharding.strategy.origin
                                                  : sharding.reshard_after_forward.origin,
           "becomes stage 2, which keeps parameters whole between steps too");
    }
  }

  // Groups of ranks that hold one copy each are DeepSpeed's MiCS, which is a form of stage 3.
  void put_groups() {
    const ShardingPlan& sharding = plan_.sharding;
    const bool is_hybrid = sharding.strategy.value.starts_with("HYBRID");
    const Origin& origin =
        sharding.factor.value ? sharding.factor.origin : sharding.strategy.origin;
    if (const auto shards = shards_of_copy(plan_); shards && stage_ == 3) {
      put("zero_optimization.mics_shard_size", ConfigNode::of_integer(*shards));
      lose(origin, "becomes mics_shard_size, which DeepSpeed 0.18 reads and 0.19.8 refuses");
    } else if (is_hybrid) {
      lose(origin,
           "mics_shard_size would need the ranks of one machine: give --ranks; as it is "
           "the shards span all ranks");
    }
    if (sharding.strategy.value == "HYBRID_SHARD_ZERO2") {
      lose(sharding.strategy.origin, "becomes stage 3, which releases parameters after forward");
    }
  }

  // Settings of an FSDP file that DeepSpeed's format has no key for.
  void lose_the_rest() {
    if (plan_.settings() == nullptr) return;
    static const std::set<std::string_view> kCarried = {
        "distributed_type",
        "mixed_precision",
        "compute_environment",
        "fsdp_config.fsdp_sharding_strategy",
        "fsdp_config.fsdp_reshard_after_forward",
        "fsdp_config.fsdp_offload_params",
        "fsdp_config.fsdp_state_dict_type",
        "fsdp_config.fsdp_version",
        "parallelism_config.parallelism_config_dp_shard_size",
        "parallelism_config.parallelism_config_dp_replicate_size",
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
      lose(entry.origin, is_launch      ? "is set on DeepSpeed's command line"
                         : is_recompute ? "is enabled in the program with DeepSpeed"
                                        : "has no DeepSpeed key");
    }
  }

  const Plan& plan_;
  int64_t stage_ = 3;
  ConfigNode root_;
  Conversion result_;
};

}  // namespace

bool is_missed(const Settings::Entry& entry) {
  if (entry.origin.from == Origin::From::derived || is_auto(entry.value, entry.key->type)) {
    return false;
  }
  const auto fallback = check_value(fallback_of(*entry.key), entry.key->type, true).value;
  return !fallback || !same_value(entry.value, *fallback);
}

std::optional<int64_t> shards_of_copy(const Plan& plan) {
  if (plan.sharding.factor.value) return plan.sharding.factor.value;
  const bool is_hybrid = plan.sharding.strategy.value.starts_with("HYBRID");
  if (!is_hybrid || !plan.launch.ranks.value) return std::nullopt;
  return *plan.launch.ranks.value / plan.launch.machines.value;
}

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
      result.notes.push_back(fmt::format("{}: is set on DeepSpeed's command line", path));
    }
  }
  return result;
}

}  // namespace fullshard::config
