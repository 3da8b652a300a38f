// SPDX-License-Identifier: Apache-2.0
// Every key that docs/config_support.md calls honoured changes something that a run does; every key
// that it calls noted says so when it asks for what does not happen.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "fullshard/base/error.h"
#include "fullshard/config/launched_config.h"
#include "fullshard/config/schema/schema.h"
#include "fullshard/config/schema/value_check.h"
#include "tests/files.h"
#include "tests/train/plan_consumers.h"

namespace fullshard::testing {
namespace {

using Overrides = std::vector<std::string>;

// What must be said before a key has a meaning: by the longest beginning of its path that is here.
const std::map<std::string, Overrides, std::less<>>& settings_around() {
  static const std::map<std::string, Overrides, std::less<>> around = {
      {"fp16.", {"fp16.enabled=true"}},
      {"fp16.enabled", {}},
      {"bf16.", {"bf16.enabled=true"}},
      {"bf16.enabled", {}},
      {"bf16.bf16_optimizer_states",
       {"bf16.enabled=true", "bf16.bf16_master_weights_and_grads=true"}},
      {"amp.opt_level", {"amp.enabled=true"}},
      {"communication_data_type", {"bf16.enabled=true"}},
      {"zero_optimization.", {"zero_optimization.stage=3"}},
      {"zero_optimization.stage", {}},
      {"zero_optimization.compute_grad_norm", {"zero_optimization.stage=2", "gradient_clipping=0"}},
      {"zero_optimization.stage3_gather_16bit_weights_on_model_save",
       {"zero_optimization.stage=3", "bf16.enabled=true"}},
      {"optimizer.params.", {"optimizer.params.weight_decay=0.25"}},
      {"optimizer.params.dampening", {"optimizer.params.momentum=0.5"}},
      {"optimizer.params.nesterov", {"optimizer.params.momentum=0.5"}},
      {"scheduler.type", {"scheduler.params.warmup_num_steps=7"}},
      {"scheduler.params.decay_", {"scheduler.params.decay_step_size=5"}},
      {"scheduler.params.decay_step_size", {"scheduler.params.decay_lr_rate=0.5"}},
      {"deepspeed_config.zero3_save_16bit_model",
       {"deepspeed_config.zero_stage=3", "mixed_precision=bf16"}},
      {"fsdp_config.fsdp_transformer_layer_cls_to_wrap",
       {"fsdp_config.fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP"}},
      {"fsdp_config.fsdp_min_num_params", {"fsdp_config.fsdp_auto_wrap_policy=SIZE_BASED_WRAP"}},
      {"fsdp_config.fsdp_ignored_modules",
       {"fsdp_config.fsdp_auto_wrap_policy=TRANSFORMER_BASED_WRAP"}},
      {"fsdp_config.min_num_params",
       {"fsdp_config.min_num_params=1000", "fsdp_config.auto_wrap_policy=SIZE_BASED_WRAP"}},
      {"fsdp_config.fsdp_sync_module_states", {"fsdp_config.fsdp_cpu_ram_efficient_loading=false"}},
      {"parallelism_config.", {"fsdp_config.fsdp_version=2"}},
      {"num_machines", {"num_processes=4", "main_process_ip=n0"}},
      {"machine_rank", {"num_processes=4", "num_machines=2", "main_process_ip=n0"}},
  };
  return around;
}

// Values that only the key itself can tell.
const std::map<std::string, Overrides, std::less<>>& values_of_texts() {
  static const std::map<std::string, Overrides, std::less<>> values = {
      {"comms_logger.prof_ops", {"[\"all_gather\"]"}},
      {"fsdp", {"shard_grad_op", "no_shard"}},
      {"fsdp_config.fsdp_transformer_layer_cls_to_wrap", {"PlanRoot"}},
      {"fsdp_config.transformer_layer_cls_to_wrap", {"PlanRoot"}},
      {"optimizer.params.betas", {"[0.5, 0.6]"}},
      {"optimizer.params.max_coeff", {"0.02"}},
      {"optimizer.params.min_coeff", {"9"}},
      {"optimizer.params.eps", {"0.5"}},
      {"scheduler.params.decay_mom_rate", {"0.0001"}},
      {"scheduler.params.warmup_min_lr", {"0.00001"}},
  };
  return values;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Overrides values_for(const config::SchemaKey& key) {
  const auto found = values_of_texts().find(key.path);
  if (found != values_of_texts().end()) return found->second;
  switch (key.type.kind) {
    case config::ValueKind::boolean:
      return {"true", "false"};
    case config::ValueKind::integer:
      return {"1", "2", "3", "4", "6", "100"};
    case config::ValueKind::number:
      return {"0.5", "0.25", "0.85", "2", "0.005"};
    case config::ValueKind::choice:
      return config::choices_of(key.type);
    default:
      return {"first", "0,1"};
  }
}

// One row under one type or version.
class KeyCase {
 public:
  KeyCase(config::Family family, const config::SchemaKey& key, const std::string& variant)
      : family_(family), key_(key), variant_(variant) {}

  bool changes_something() const {
    const auto before = consumers_with(std::nullopt);
    EXPECT_TRUE(before) << name();
    for (const std::string& value : values_for(key_)) {
      const auto after = consumers_with(value);
      if (after && after != before) return true;
    }
    return false;
  }

  std::string name() const { return fmt::format("{} ({})", key_.path, variant_); }

 private:
  std::string_view path() const { return key_.path; }

  std::string base() const {
    if (family_ == config::Family::deepspeed) return "{}";
    if (family_ == config::Family::trainer) return R"({"fsdp_config": {}})";
    return path().starts_with("deepspeed_config.") ? "distributed_type: DEEPSPEED\n"
                                                   : "distributed_type: FSDP\n";
  }

  // Types and versions first: other keys depend on them.
  Overrides around() const {
    Overrides overrides;
    if (!variant_.empty()) overrides = of_variant();
    const std::string* best = nullptr;
    const Overrides* chosen = nullptr;
    for (const auto& [prefix, settings] : settings_around()) {
      if (!path().starts_with(prefix) || (best != nullptr && prefix.size() < best->size()))
        continue;
      best = &prefix;
      chosen = &settings;
    }
    if (chosen != nullptr) overrides.insert(overrides.end(), chosen->begin(), chosen->end());
    return overrides;
  }
  Overrides of_variant() const {
    if (path().starts_with("optimizer.")) return {"optimizer.type=" + variant_};
    if (path().starts_with("fsdp_config.")) {
      return {fmt::format("fsdp_config.{}version={}",
                          family_ == config::Family::trainer ? "" : "fsdp_", variant_)};
    }
    for (const std::string& type :
         config::choices_of(config::Schema::of(family_).find("scheduler.type")[0]->type)) {
      if (config::plain_name(type) == variant_) return of_schedule(type);
    }
    return {};
  }
  static Overrides of_schedule(const std::string& type) {
    Overrides overrides = {"scheduler.type=" + type};
    if (type == "WarmupDecayLR" || type == "WarmupCosineLR") {
      overrides.push_back("scheduler.params.total_num_steps=150");
    }
    if (type.starts_with("Warmup")) overrides.push_back("scheduler.params.warmup_num_steps=7");
    if (type == "OneCycle") {
      for (const auto* text : {"min_lr=0.001", "max_lr=0.01", "first_step_size=20"}) {
        overrides.push_back(fmt::format("scheduler.params.cycle_{}", text));
      }
    }
    if (type == "LRRangeTest") overrides.push_back("scheduler.params.lr_range_test_step_size=20");
    return overrides;
  }

  // Nothing when such a file is refused.
  std::optional<std::string> consumers_with(const std::optional<std::string>& value) const {
    PlanOptions options{.overrides = around(), .ranks = 4};
    if (path().starts_with("num_") || path().starts_with("machine_")) options.ranks.reset();
    if (value) {  // in place of one that is around
      options.overrides =
          config::overrides_of(options.overrides, {fmt::format("{}={}", path(), *value)});
    }
    try {
      return consumers_of(Plan::parse(base(), "f", options));
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  config::Family family_;
  const config::SchemaKey& key_;
  std::string variant_;
};

TEST(HonouredKeys, EachChangesWhatARunDoes) {
  std::vector<std::string> silent;
  int walked = 0;
  for (const config::Family family :
       {config::Family::deepspeed, config::Family::accelerate, config::Family::trainer}) {
    for (const config::SchemaKey* key : config::Schema::of(family).keys()) {
      if (key->standing.support != config::Support::honoured) continue;
      if (key->path == "deepspeed_config.deepspeed_config_file") continue;  // the test below
      for (const std::string& variant : split(key->when, '|')) {
        const KeyCase one(family, *key, variant);
        ++walked;
        if (!one.changes_something()) silent.push_back(one.name());
      }
    }
  }
  EXPECT_GT(walked, 150);
  EXPECT_TRUE(silent.empty()) << "without effect:\n" << fmt::format("{}", fmt::join(silent, "\n"));
}

TEST(HonouredKeys, OfAnotherFileCount) {
  const TemporaryFolder folder;
  const std::string file = folder.file("ds.json");
  std::ofstream(file) << R"({"train_batch_size": 8, "zero_optimization": {"stage": 3}})";
  const auto consumers = [](const std::string& more) {
    return consumers_of(Plan::parse("distributed_type: DEEPSPEED\n" + more, "a.yaml"));
  };
  EXPECT_NE(consumers("deepspeed_config:\n  deepspeed_config_file: " + file + "\n"), consumers(""));
}

// One that sections of free form may have, or what files say otherwise.
std::vector<config::ConfigNode> nodes_for(const config::SchemaKey& key) {
  std::vector<config::ConfigNode> nodes;
  if (key.type.kind == config::ValueKind::open_map) {
    nodes.push_back({.kind = config::NodeKind::map, .members = {{.name = "a"}}});
    return nodes;
  }
  for (const std::string& value : values_for(key)) {
    nodes.push_back(config::ConfigNode::of_plain(value, false));
  }
  return nodes;
}

// Some value of each asks for what does not happen here, and is answered with a warning.
TEST(NotedKeys, EachWarnsWhenItAsksForWhatDoesNotHappen) {
  int walked = 0;
  for (const config::Family family :
       {config::Family::deepspeed, config::Family::accelerate, config::Family::trainer}) {
    for (const config::SchemaKey* key : config::Schema::of(family).keys()) {
      if (key->standing.support != config::Support::noted) continue;
      ++walked;
      int remarks = 0;
      for (const config::ConfigNode& node : nodes_for(*key)) {
        const auto checked = config::check_value(node, key->type, true).value;
        if (checked && !config::remark_on(*checked, *key).empty()) ++remarks;
      }
      EXPECT_GT(remarks, 0) << key->path;
      const config::ConfigNode held = key->standing.held.empty()
                                          ? config::fallback_of(*key)
                                          : config::ConfigNode::of_plain(key->standing.held, false);
      const auto checked = config::check_value(held, key->type, true).value;
      ASSERT_TRUE(checked) << key->path;
      EXPECT_TRUE(checked->kind == config::NodeKind::null ||
                  config::remark_on(*checked, *key).empty())
          << key->path;
    }
  }
  EXPECT_GT(walked, 40);
}

}  // namespace
}  // namespace fullshard::testing
