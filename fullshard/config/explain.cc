// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/explain.h"

#include <fmt/format.h>

#include <algorithm>

#include "fullshard/base/printable.h"
#include "fullshard/config/memory_effect.h"
#include "fullshard/config/schema/value_check.h"

namespace fullshard::config {
namespace {

class Explainer {
 public:
  Explainer(const Plan& plan, int64_t ranks) : plan_(plan), ranks_(ranks) {}

  Explanation run() {
    if (plan_.settings() != nullptr) add_all(*plan_.settings());
    if (plan_.deepspeed() != nullptr) add_all(*plan_.deepspeed());
    return std::move(result_);
  }

 private:
  void add_all(const Settings& settings) {
    for (const SchemaKey* key : settings.schema().keys()) {
      const bool counts = covers(key->when, settings.variant_of(key->path));
      if (counts && !is_beside_the_point(settings, key->path)) add(settings, *key);
    }
  }
  // Parameters of a schedule that is absent or that a flag without a key replaced: the warm-up is
  // the only part that the Trainer's schedules take from the file.
  bool is_beside_the_point(const Settings& settings, std::string_view path) const {
    const SchedulerPlan& scheduler = plan_.scheduler;
    if (path == "scheduler.params.warmup_num_steps") {
      return !settings.has("scheduler.type") || scheduler.warmup_share.value.has_value();
    }
    if (path == "scheduler.type") return is_own(scheduler.type.origin);
    return path.starts_with("scheduler.params.") &&
           (!settings.has("scheduler.type") || is_own(scheduler.type.origin));
  }
  // Accelerate's files have a section for each way to shard: defaults of the others are irrelevant.
  static bool is_of_this_kind(const Settings& settings, std::string_view path) {
    if (settings.family() == Family::deepspeed) return true;
    const bool asks_xla = settings.get<bool>("fsdp_config.xla").value;
    if (path.starts_with("fsdp_config.xla")) return asks_xla;
    if (settings.family() == Family::trainer) return true;
    const std::string type = settings.get<std::string>("distributed_type").value;
    const std::string_view section = path.substr(0, path.find('.'));
    if (section == path) return true;
    if (section == "fsdp_config") return type == "FSDP" || type == "XLA";
    if (section == "deepspeed_config") return type == "DEEPSPEED";
    if (section == "fp8_config") {
      return settings.get<std::string>("mixed_precision").value == "fp8";
    }
    return std::any_of(
        settings.entries().begin(), settings.entries().end(), [&](const auto& entry) {
          return entry.first.starts_with(section) && entry.first[section.size()] == '.';
        });
  }
  // Whether the value comes from a flag that is listed under its own name.
  static bool is_own(const Origin& origin) {
    return origin.from == Origin::From::flag && origin.key.starts_with("--");
  }

  void add(const Settings& settings, const SchemaKey& key) {
    ExplainedKey row{.path = std::string(key.path), .effect = std::string(key.meaning)};
    const Settings::Entry* entry = settings.find(key.path);
    if (entry != nullptr) {
      row.value = entry->value;
      row.origin = entry->origin.text();
      if (!entry->origin.note.empty() && entry->origin.from == Origin::From::derived) {
        row.effect += fmt::format(" (from {})", entry->origin.note);
      }
    } else {
      row.value = check_value(fallback_of(key), key.type, true).value.value_or(fallback_of(key));
      row.origin = "default";
      derive(settings, key, row);
    }
    if (settings.is_auto(key.path) && key.fallback != "auto") {
      row.effect += fmt::format("; waits for {}", name_of(need_of(key.path)));
    }
    if (key.standing.support != Support::honoured) {
      row.effect +=
          fmt::format("; {}{}", key.standing.support == Support::refused ? "not supported: " : "",
                      key.standing.note);
    }
    if (auto memory = memory_effect(plan_, key.path, ranks_);
        !memory.empty() && !settings.is_auto(key.path)) {
      row.effect += "; " + memory;
    }
    row.is_worth_a_line = row.origin != "default" || (key.standing.support == Support::honoured &&
                                                      is_of_this_kind(settings, key.path));
    result_.keys.push_back(std::move(row));
  }

  // Fills in defaults that depend on other settings.
  void derive(const Settings& settings, const SchemaKey& key, ExplainedKey& row) {
    if (key.path == "zero_optimization.overlap_comm") {
      row.value = ConfigNode::of_boolean(plan_.sharding.overlap_comm.value);
      row.origin = "derived";
    }
    if (key.path == "optimizer.params.lr" && !settings.has("optimizer.type")) {
      row.value = ConfigNode::of_number(plan_.optimizer.lr.value);
    }
  }

  const Plan& plan_;
  int64_t ranks_;
  Explanation result_;
};

template <class IsShown>
std::string table_of(const std::vector<ExplainedKey>& keys, const IsShown& is_shown) {
  size_t key_width = 0;
  size_t value_width = 0;
  size_t origin_width = 0;
  for (const ExplainedKey& key : keys) {
    if (!is_shown(key)) continue;
    key_width = std::max(key_width, key.path.size());
    value_width =
        std::max(value_width, std::min<size_t>(24, base::printable(to_json(key.value)).size()));
    origin_width = std::max(origin_width, key.origin.size());
  }
  std::string text;
  for (const ExplainedKey& key : keys) {
    if (!is_shown(key)) continue;
    text += fmt::format("{:<{}}  {:<{}}  {:<{}}  {}\n", key.path, key_width,
                        base::printable(to_json(key.value)), value_width,
                        base::printable(key.origin), origin_width, key.effect);
  }
  return text;
}

// Lists flags that the file's family has no key for under their own names.
class FlagKeys {
 public:
  explicit FlagKeys(std::vector<ExplainedKey>& keys) : keys_(keys) {}

  template <class T>
  void add(const Setting<T>& setting, ConfigNode value, std::string effect) {
    const Origin& origin = setting.origin;
    if (origin.from != Origin::From::flag || !origin.key.starts_with("--")) return;
    keys_.push_back({.path = origin.key,
                     .value = std::move(value),
                     .origin = origin.text(),
                     .effect = std::move(effect),
                     .is_worth_a_line = true});
  }
  void add(const Setting<double>& setting, std::string effect) {
    add(setting, ConfigNode::of_number(setting.value), std::move(effect));
  }
  void add(const Setting<int64_t>& setting, std::string effect) {
    add(setting, ConfigNode::of_integer(setting.value), std::move(effect));
  }
  void add(const Setting<std::optional<int64_t>>& setting, std::string effect) {
    add(setting, ConfigNode::of_integer(setting.value.value_or(0)), std::move(effect));
  }
  void add(const Setting<std::optional<double>>& setting, std::string effect) {
    add(setting, ConfigNode::of_number(setting.value.value_or(0)), std::move(effect));
  }
  void add(const Setting<std::string>& setting, std::string effect) {
    add(setting, ConfigNode::of_text(setting.value), std::move(effect));
  }
  void add(const Setting<bool>& setting, std::string effect) {
    add(setting, ConfigNode::of_boolean(setting.value), std::move(effect));
  }

 private:
  std::vector<ExplainedKey>& keys_;
};

void add_flag_keys(const Plan& plan, std::vector<ExplainedKey>& keys) {
  FlagKeys flags(keys);
  flags.add(plan.optimizer.type, "the optimizer");
  flags.add(plan.optimizer.lr, "learning rate");
  if (plan.optimizer.betas.value.size() == 2) {
    ConfigNode betas;
    betas.kind = NodeKind::list;
    for (const double beta : plan.optimizer.betas.value) {
      betas.items.push_back(ConfigNode::of_number(beta));
    }
    flags.add(plan.optimizer.betas, std::move(betas), "decays of the means");
  }
  flags.add(plan.optimizer.eps, "added to the denominator");
  flags.add(plan.optimizer.weight_decay, "pull towards zero");
  flags.add(plan.scheduler.type, "the learning-rate schedule");
  flags.add(plan.scheduler.warmup_num_steps, "steps of the warm-up");
  flags.add(plan.scheduler.warmup_share, "share of the steps that the warm-up takes");
  flags.add(plan.scheduler.trainer, ConfigNode::of_text(plan.scheduler.trainer.value.text),
            "arguments of the schedule");
  flags.add(plan.batch.micro, "examples of a rank in one forward");
  flags.add(plan.batch.accumulation, "micro-batches per optimizer step");
  flags.add(plan.clipping, "largest global norm of gradients; 0: no clipping");
  flags.add(plan.sharding.strategy, "what is sharded");
  flags.add(plan.sharding.stage, "ZeRO stage");
  flags.add(plan.sharding.factor, "ranks that one copy is sharded over");
  flags.add(plan.precision.bf16, "computation in bf16");
  flags.add(plan.precision.fp16, "computation in fp16");
  flags.add(plan.precision.fp8, "products of blocks in fp8");
  flags.add(plan.recompute.enabled, "activations are computed again in backward");
  flags.add(plan.wrap.policy, "which modules are units");
  if (plan.logging.tensorboard.enabled.origin.from == Origin::From::flag) {
    const bool events = *plan.logging.tensorboard.enabled, csv = *plan.logging.csv_monitor.enabled;
    const char* named = events && csv ? "all" : events ? "tensorboard" : csv ? "csv" : "none";
    flags.add(plan.logging.tensorboard.enabled, ConfigNode::of_text(named),
              "which files hold the values of metrics.jsonl too");
  }
}

}  // namespace

std::string Explanation::text() const {
  return table_of(keys, [](const ExplainedKey& key) { return key.is_worth_a_line; });
}

std::string Explanation::short_text() const {
  return table_of(
      keys, [](const ExplainedKey& key) { return key.is_worth_a_line && key.origin != "default"; });
}

std::string Explanation::json() const {
  std::string text = "{";
  for (const ExplainedKey& key : keys) {
    text += fmt::format("{}\n  {}: {{\"value\": {}, \"origin\": {}, \"effect\": {}}}",
                        text.size() > 1 ? "," : "", quote_json(key.path), to_json(key.value),
                        quote_json(key.origin), quote_json(key.effect));
  }
  return text + "\n}";
}

Explanation explain(const Plan& plan, std::optional<int64_t> ranks) {
  if (!ranks) ranks = plan.launch.ranks.value;
  Explanation explanation = Explainer(plan, ranks.value_or(1)).run();
  add_flag_keys(plan, explanation.keys);
  return explanation;
}

}  // namespace fullshard::config
