// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/effective_settings.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "fullshard/base/printable.h"
#include "fullshard/config/sharding_flags.h"
#include "fullshard/config/unused_flags.h"

namespace fullshard::config {
namespace {

using Json = nlohmann::ordered_json;

struct FlagEffect {
  std::string_view flag, effect;
};

// Shown in a report next to a value that no key of the configuration explains.
constexpr std::array kEffects = {
    FlagEffect{"--zero-stage", "what is sharded: 1 states, 2 gradients too, 3 parameters too"},
    FlagEffect{"--strategy", "what is sharded over the ranks, and when it is gathered"},
    FlagEffect{"--sharding-factor", "ranks that share one copy of the model"},
    FlagEffect{"--wrap", "which modules are gathered as a whole"},
    FlagEffect{"--offload", "what is kept off the device"},
    FlagEffect{"--offload-ratio", "share of the states that leaves the device"},
    FlagEffect{"--offload-resident", "bytes of parameters that stay on the device"},
    FlagEffect{"--offload-step", "where offloaded states are updated"},
    FlagEffect{"--precision", "what forward and backward compute in"},
    FlagEffect{"--recompute", "activations are computed again in the backward"},
    FlagEffect{"--optimizer", "the update rule"},
    FlagEffect{"--lr", "the learning rate after the warm-up"},
    FlagEffect{"--adam-beta1", "how long the mean of gradients remembers"},
    FlagEffect{"--adam-beta2", "how long the mean of their squares remembers"},
    FlagEffect{"--adam-epsilon", "keeps the division by that mean's root finite"},
    FlagEffect{"--weight-decay", "how strongly weights are drawn to zero"},
    FlagEffect{"--schedule", "how the learning rate changes over steps"},
    FlagEffect{"--warmup", "steps (or, below 1, the share of them) in which the rate rises"},
    FlagEffect{"--clip", "the largest norm of a step's gradients; 0: any"},
    FlagEffect{"--micro-batch", "examples of a rank in one forward"},
    FlagEffect{"--accumulate", "micro-batches of a rank in one step"},
    FlagEffect{"--drop-last", "an epoch's last batch is left out if it is not full"},
    FlagEffect{"--steps", "optimizer steps of the run; 0: set by epochs"},
    FlagEffect{"--epochs", "passes over the data, where steps are 0; 0: one"},
    FlagEffect{"--seed", "new weights, the order of the data, dropout"},
    FlagEffect{"--order", "the order of examples"},
    FlagEffect{"--sequence-length", "tokens of an example; 0: the model's, at most 512"},
    FlagEffect{"--target-length", "tokens of a target; 0: the sequence length"},
    FlagEffect{"--max-samples", "at most this many examples; 0: all"},
    FlagEffect{"--task", "what is trained for; empty: what the model is for"},
    FlagEffect{"--loss-on",
               "which tokens the loss counts; empty: completions where rows have them"},
    FlagEffect{"--packing", "several documents in a sequence"},
    FlagEffect{"--mask-probability", "share of tokens that are masked"},
    FlagEffect{"--label-smoothing", "share of the loss that goes to all other tokens"},
    FlagEffect{"--reduce-once", "gradients are reduced once per step, not per micro-batch"},
    FlagEffect{"--tf32", "matrix products of fp32 on CUDA; empty: libtorch's default"},
    FlagEffect{"--lora-rank", "width of the adapter"},
    FlagEffect{"--lora-alpha", "the adapter is scaled by alpha / rank; null: alpha is 8"},
    FlagEffect{"--lora-dropout", "share of the adapter's input that is dropped; null: none"},
    FlagEffect{"--lora-targets", "which layers have an adapter; empty: the model's usual"},
    FlagEffect{"--lora-modules-to-save", "layers that are trained in full"},
    FlagEffect{"--lora-rslora", "the adapter is scaled by alpha / sqrt(rank)"},
};

std::string_view effect_of(std::string_view flag) {
  for (const FlagEffect& one : kEffects) {
    if (one.flag == flag) return one.effect;
  }
  return {};
}

class SettingsTable {
 public:
  explicit SettingsTable(const std::function<bool(std::string_view)>& is_given)
      : is_given_(is_given) {}

  // A value that a key of configurations sets.
  template <class T>
  void add(const char* flag, const T& value, const Origin& origin) {
    rows_.push_back({flag, text_of(value), origin.text()});
  }
  template <class T>
  void add(const char* flag, const Setting<T>& setting) {
    add(flag, setting.value, setting.origin);
  }
  // A value that only a flag sets.
  template <class T>
  void add(const char* flag, const T& value) {
    rows_.push_back({flag, text_of(value), is_given_(flag + 2) ? "flag" : "default"});
  }

  std::vector<EffectiveSetting> take() { return std::move(rows_); }

 private:
  template <class T>
  static std::string text_of(const T& value) {
    if constexpr (requires { value.has_value(); }) {
      return value ? text_of(*value) : "null";
    } else {
      return Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }

  const std::function<bool(std::string_view)>& is_given_;
  std::vector<EffectiveSetting> rows_;
};

void add_sharding(SettingsTable& table, const Plan& plan) {
  const ShardingPlan& sharding = plan.sharding;
  if (sharding.stage.value) {
    table.add("--zero-stage", sharding.stage);
  } else {
    table.add("--strategy", strategy_in_effect(sharding));
  }
  if (sharding.factor.value) table.add("--sharding-factor", sharding.factor);
  const WrapPlanSettings& wrap = plan.wrap;
  if (*wrap.policy == "NO_WRAP") {
    table.add("--wrap", "none", wrap.policy.origin);
  } else if (*wrap.policy == "SIZE_BASED_WRAP") {
    table.add("--wrap", wrap.min_num_params);
  } else if (wrap.classes->empty()) {
    table.add("--wrap", "auto", wrap.policy.origin);
  } else {
    table.add("--wrap", wrap.classes);
  }
}

void add_place(std::vector<std::string>& places, const char* what, const OffloadTarget& target) {
  if (*target.device == "none") return;
  const bool is_disk = *target.device == "nvme";
  places.push_back(
      fmt::format("{}:{}", what, is_disk ? target.nvme_path->value_or("nvme") : *target.device));
}

void add_offload(SettingsTable& table, const OffloadPlan& offload) {
  std::vector<std::string> places;
  if (*offload.everything) {
    places.emplace_back("all:cpu");
  } else {
    add_place(places, "optimizer", offload.optimizer);
    add_place(places, "param", offload.parameters);
  }
  const bool is_explicit = offload.optimizer.device.origin.is_explicit();
  table.add("--offload", places,
            *offload.everything ? offload.everything.origin
            : is_explicit       ? offload.optimizer.device.origin
                                : offload.parameters.device.origin);
  if (places.empty()) return;
  table.add("--offload-ratio", offload.ratio);
  table.add("--offload-resident", offload.resident_bytes);
  table.add("--offload-step", offload.step);
}

void add_precision(SettingsTable& table, const Plan& plan) {
  const PrecisionPlan& precision = plan.precision;
  if (*precision.fp8) {
    table.add("--precision", "fp8", precision.fp8.origin);
  } else if (*precision.bf16) {
    table.add("--precision", "bf16", precision.bf16.origin);
  } else {
    table.add("--precision", *precision.fp16 ? "fp16" : "no", precision.fp16.origin);
  }
  table.add("--recompute", plan.recompute.enabled);
}

void add_optimizer(SettingsTable& table, const Plan& plan) {
  const OptimizerPlan& optimizer = plan.optimizer;
  table.add("--optimizer", optimizer.type);
  table.add("--lr", optimizer.lr);
  if (optimizer_takes(optimizer, "betas")) {
    table.add("--adam-beta1", optimizer.betas->at(0), optimizer.betas.origin);
    table.add("--adam-beta2", optimizer.betas->at(1), optimizer.betas.origin);
  }
  if (optimizer_takes(optimizer, "eps")) table.add("--adam-epsilon", optimizer.eps);
  table.add("--weight-decay", optimizer.weight_decay);
  table.add("--schedule", plan.scheduler.type);
  if (plan.scheduler.warmup_share.value) {
    table.add("--warmup", plan.scheduler.warmup_share);
  } else {
    table.add("--warmup", plan.scheduler.warmup_num_steps);
  }
  table.add("--clip", plan.clipping);
}

void add_batches(SettingsTable& table, const Plan& plan, const RunOptions& options, int64_t ranks) {
  const BatchSizes sizes = plan.batch_sizes(ranks);
  table.add("--micro-batch", sizes.micro_batch, plan.batch.micro.origin);
  table.add("--accumulate", sizes.accumulation, plan.batch.accumulation.origin);
  if (options.drop_last) {
    table.add("--drop-last", true);
  } else {
    table.add("--drop-last", plan.batch.drop_last);
  }
}

void add_run(SettingsTable& table, const RunOptions& options) {
  table.add("--steps", options.steps);
  table.add("--epochs", options.epochs);
  table.add("--seed", options.seed);
  table.add("--order", options.order);
  table.add("--sequence-length", options.sequence_length);
  table.add("--target-length", options.target_length);
  table.add("--max-samples", options.max_samples);
  table.add("--task", options.task);
  table.add("--loss-on", options.loss_on);
  table.add("--packing", options.packing);
  table.add("--mask-probability", options.mask_probability);
  table.add("--label-smoothing", options.label_smoothing);
  table.add("--reduce-once", options.reduce_once);
  table.add("--tf32", options.tf32);
}

void add_adapter(SettingsTable& table, const RunOptions& options) {
  if (!options.lora.is_any()) return;
  table.add("--lora-rank", options.lora.rank);
  table.add("--lora-alpha", options.lora.alpha);
  table.add("--lora-dropout", options.lora.dropout);
  table.add("--lora-targets", options.lora.targets);
  table.add("--lora-modules-to-save", options.lora.modules_to_save);
  table.add("--lora-rslora", options.lora.use_rslora);
}

}  // namespace

std::vector<EffectiveSetting> effective_settings(
    const Plan& plan, const RunOptions& options, int64_t ranks,
    const std::function<bool(std::string_view flag)>& is_given) {
  SettingsTable table(is_given);
  add_sharding(table, plan);
  add_offload(table, plan.offload);
  add_precision(table, plan);
  add_optimizer(table, plan);
  add_batches(table, plan, options, ranks);
  add_run(table, options);
  add_adapter(table, options);
  return table.take();
}

std::string with_settings(const std::string& configuration,
                          const std::vector<EffectiveSetting>& settings) {
  auto json = Json::parse(configuration);
  for (const EffectiveSetting& one : settings) {
    auto& row = json[one.flag];
    if (!row.contains("effect")) row["effect"] = effect_of(one.flag);
    row["value"] = Json::parse(one.value);
    row["origin"] = one.origin;
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string settings_text(const std::vector<EffectiveSetting>& settings) {
  std::string text;
  for (const EffectiveSetting& one : settings) {
    text += fmt::format("{:<22}  {:<24}  {}\n", one.flag, base::printable(one.value),
                        base::printable(one.origin));
  }
  return text;
}

}  // namespace fullshard::config
