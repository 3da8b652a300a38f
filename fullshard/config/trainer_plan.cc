// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <sstream>

#include "fullshard/base/closest.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/schema/value_check.h"
#include "fullshard/config/sharding_flags.h"

namespace fullshard::config {
namespace {

const std::vector<std::string>& words_of_fsdp() {
  static const std::vector<std::string> words = {"full_shard",   "shard_grad_op",      "no_shard",
                                                 "hybrid_shard", "hybrid_shard_zero2", "offload",
                                                 "auto_wrap"};
  return words;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

bool is_word_of_fsdp(const std::string& name) {
  const auto& known = words_of_fsdp();
  return name == "true" || name == "false" ||
         std::find(known.begin(), known.end(), name) != known.end();
}

struct FsdpWords {
  std::vector<std::string> strategies{};  // different ones
  std::vector<std::string> unknown{};
  std::vector<std::string> spaced{};  // "full shard", which the Trainer does not read
  bool offloads = false;
  bool is_off = false;

  // "full_shard auto_wrap": one string or a list; true and auto_wrap add nothing to the defaults.
  explicit FsdpWords(const ConfigNode& list) {
    for (const ConfigNode& item : list.items) {
      std::istringstream stream(item.text);
      std::vector<std::string> parts{std::istream_iterator<std::string>(stream), {}};
      for (size_t at = 0; at < parts.size();) at += take(std::span(parts).subspan(at));
    }
  }

 private:
  // The longest word that begins here, "shard grad op" before "shard"; gives its number of parts.
  size_t take(std::span<const std::string> parts) {
    for (size_t length = std::min<size_t>(3, parts.size()); length > 0; --length) {
      const std::string written = fmt::format("{}", fmt::join(parts.first(length), " "));
      if (!is_word_of_fsdp(plain_name(written))) continue;
      if (length > 1) spaced.push_back(written);
      add(plain_name(written));
      return length;
    }
    unknown.push_back(parts[0]);
    return 1;
  }
  void add(const std::string& name) {
    if (name == "true" || name == "auto_wrap") return;
    if (name == "false") {
      is_off = true;
    } else if (name == "offload") {
      offloads = true;
    } else if (std::find(strategies.begin(), strategies.end(), name) == strategies.end()) {
      strategies.push_back(name);
    }
  }
};

}  // namespace

void PlanMaker::fill_from_trainer(Plan& plan, Settings& settings) {
  const auto flag = [&](std::string_view name) {
    return settings.get<bool>(fmt::format("fsdp_config.{}", name));
  };
  ShardingPlan& sharding = plan.sharding;
  plan.offload.everything = flag("cpu_offload");
  if (settings.has("fsdp")) fill_fsdp_words(plan, settings);
  if (settings.get<int64_t>("fsdp_config.version").value == 1) {
    const auto strategy = settings.get<std::string>("fsdp_config.reshard_after_forward");
    if (sharding.strategy.origin.from == Origin::From::fallback) sharding.strategy = strategy;
    sharding.strategy.value = upper(sharding.strategy.value);
  } else if (sharding.strategy.value != "NO_SHARD") {
    const auto reshard = flag("reshard_after_forward");
    sharding.reshard_after_forward = {reshard.value, reshard.origin};
  }
  sharding.backward_prefetch = settings.get<std::string>("fsdp_config.backward_prefetch");
  sharding.forward_prefetch = flag("forward_prefetch");
  sharding.limit_all_gathers = flag("limit_all_gathers");
  sharding.sync_module_states = flag("sync_module_states");
  sharding.deferred_loading = flag("cpu_ram_efficient_loading");

  plan.wrap.policy = settings.get<std::string>("fsdp_config.auto_wrap_policy");
  const auto classes =
      settings.get<std::vector<std::string>>("fsdp_config.transformer_layer_cls_to_wrap");
  plan.wrap.classes = {split_names(classes.value), classes.origin};
  plan.wrap.min_num_params = settings.get<int64_t>("fsdp_config.min_num_params");
  if (plan.wrap.min_num_params.value > 0 && !plan.wrap.policy.origin.is_explicit() &&
      classes.value.empty()) {
    plan.wrap.policy = {"SIZE_BASED_WRAP", plan.wrap.min_num_params.origin};
    Origin origin = plan.wrap.min_num_params.origin;
    origin.from = Origin::From::derived;
    origin.note = "min_num_params";
    settings.put("fsdp_config.auto_wrap_policy", ConfigNode::of_text("SIZE_BASED_WRAP"),
                 std::move(origin));
  }
  plan.wrap.ignored_modules = settings.get<std::string>("fsdp_config.ignored_modules");
  plan.recompute.enabled = flag("activation_checkpointing");
  plan.checkpoint.state_dict_type = settings.get<std::string>("fsdp_config.state_dict_type");
  fill_xla(plan, settings);
}

void PlanMaker::fill_fsdp_words(Plan& plan, Settings& settings) {
  const Settings::Entry& fsdp = *settings.find("fsdp");
  const FsdpWords words(fsdp.value);
  for (const std::string& word : words.spaced) {
    warn(fsdp.origin,
         fmt::format("the Trainer does not read '{}' with a space; honoured as meant", word),
         fmt::format("write {}", plain_name(word)));
  }
  for (const std::string& word : words.unknown) {
    const auto near = base::closest(plain_name(word), words_of_fsdp());
    error(fsdp.origin,
          fmt::format("unknown word '{}', expected {}", word, fmt::join(words_of_fsdp(), ", ")),
          near ? fmt::format("did you mean '{}'?", *near) : "");
  }
  if (words.strategies.size() > 1) {
    error(fsdp.origin, fmt::format("{} and {} disagree", words.strategies[0], words.strategies[1]),
          "keep one of them");
  }
  if (words.offloads && words.strategies.empty()) {
    error(fsdp.origin, "offload without a strategy", "add full_shard or shard_grad_op");
  }
  const Origin origin = fsdp.origin;  // a copy: settings.put() may move the entry
  if (words.offloads) {
    plan.offload.everything = {true, origin};
    put_word(settings, origin, "offload", "fsdp_config.cpu_offload", ConfigNode::of_boolean(true));
  }
  const bool is_off = words.is_off;
  if (words.strategies.empty() && !is_off) return;
  const std::string strategy = is_off ? "no_shard" : words.strategies[0];
  plan.sharding.strategy = {upper(strategy), origin};
  if (is_off) return;
  // The key's own form depends on the version.
  const bool is_first = settings.get<int64_t>("fsdp_config.version").value == 1;
  put_word(settings, origin, strategy, "fsdp_config.reshard_after_forward",
           is_first ? ConfigNode::of_text(strategy)
                    : ConfigNode::of_boolean(releases_after_forward(upper(strategy))));
}

// Shows the word of `fsdp` as the key's value; a key with another value is an error, not ignored.
void PlanMaker::put_word(Settings& settings, const Origin& fsdp, std::string_view word,
                         std::string_view path, ConfigNode value) {
  const Settings::Entry* said = settings.find(path);
  if (said == nullptr) {
    Origin origin = fsdp;
    origin.from = Origin::From::derived;
    origin.note = "fsdp";
    settings.put(path, std::move(value), std::move(origin));
  } else if (!same_value(said->value, value)) {
    error(said->origin,
          fmt::format("is {}, but {} says {}", text_of(said->value),
                      fsdp.from == Origin::From::flag ? fsdp.note : "fsdp", word),
          "keep one of them");
  }
}

void PlanMaker::fill_xla(Plan& plan, const Settings& settings) {
  const auto xla = settings.get<bool>("fsdp_config.xla");
  if (xla.value) plan.xla.enabled = xla;
  plan.xla.version_2 = settings.get<bool>("fsdp_config.xla_fsdp_v2");
  const auto recompute = settings.get<bool>("fsdp_config.xla_fsdp_grad_ckpt");
  if (recompute.value) {
    plan.recompute.enabled = recompute;
    if (!plan.xla.enabled.value) {
      warn(recompute.origin, "the Trainer reads it with xla only; honoured as meant");
    }
  }
  static constexpr std::array kApplied = {"compute_dtype", "buffer_dtype", "reshard_after_forward",
                                          "fp32_reduce_scatter"};
  const std::string prefix = "fsdp_config.xla_fsdp_settings.";
  for (const auto& [path, entry] : settings.entries()) {
    if (!path.starts_with(prefix)) continue;
    const std::string name = path.substr(prefix.size());
    if (std::find(kApplied.begin(), kApplied.end(), name) == kApplied.end()) {
      warn(entry.origin, "has a meaning for XLA only, ignored");
    }
  }
  if (const auto dtype = settings.get_optional<std::string>(prefix + "compute_dtype");
      dtype.value) {
    if (*dtype.value == "bfloat16") plan.precision.bf16 = {true, dtype.origin};
    if (*dtype.value == "float16") plan.precision.fp16 = {true, dtype.origin};
  }
  plan.precision.buffer_dtype = settings.get_optional<std::string>(prefix + "buffer_dtype");
  if (const auto fp32 = settings.get<bool>(prefix + "fp32_reduce_scatter"); fp32.value) {
    plan.precision.communication_data_type = {"fp32", fp32.origin};
  }
  if (settings.has(prefix + "reshard_after_forward")) {
    const auto reshard = settings.get<bool>(prefix + "reshard_after_forward");
    plan.sharding.reshard_after_forward = {reshard.value, reshard.origin};
  }
}

}  // namespace fullshard::config
