// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "fullshard/config/offload.h"
#include "fullshard/config/schema/value_check.h"
#include "fullshard/config/sharding_flags.h"

namespace fullshard {
namespace {

struct FlagRow {
  std::string_view flag;  // as plain_name() writes it
  config::Family family;
  std::string_view path;
  bool overrides = false;
};

constexpr std::array<std::string_view, 10> kTrainerSchedules = {"constant",
                                                                "constant_with_warmup",
                                                                "linear",
                                                                "cosine",
                                                                "cosine_with_restarts",
                                                                "polynomial",
                                                                "inverse_sqrt",
                                                                "cosine_with_min_lr",
                                                                "cosine_warmup_with_min_lr",
                                                                "warmup_stable_decay"};

constexpr std::string_view kStage = "zero_optimization.stage";

constexpr std::array kFlagRows = {
    FlagRow{"optimizer", config::Family::deepspeed, "optimizer.type", true},
    FlagRow{"lr", config::Family::deepspeed, "optimizer.params.lr", true},
    FlagRow{"adam_epsilon", config::Family::deepspeed, "optimizer.params.eps", true},
    FlagRow{"weight_decay", config::Family::deepspeed, "optimizer.params.weight_decay", true},
    FlagRow{"schedule", config::Family::deepspeed, "scheduler.type", true},
    FlagRow{"warmup", config::Family::deepspeed, "scheduler.params.warmup_num_steps", true},
    FlagRow{"adam_beta1", config::Family::deepspeed, "optimizer.params.betas", true},
    FlagRow{"adam_beta2", config::Family::deepspeed, "optimizer.params.betas", true},
    FlagRow{"micro_batch", config::Family::deepspeed, "train_micro_batch_size_per_gpu"},
    FlagRow{"accumulate", config::Family::deepspeed, "gradient_accumulation_steps"},
    FlagRow{"clip", config::Family::deepspeed, "gradient_clipping"},
    FlagRow{"drop_last", config::Family::deepspeed, "dataloader_drop_last"},
    FlagRow{"node_local", config::Family::deepspeed, "checkpoint.use_node_local_storage"},
    FlagRow{"offload_ratio", config::Family::deepspeed,
            "zero_optimization.offload_optimizer.ratio"},
    FlagRow{"zero_stage", config::Family::deepspeed, kStage},
    FlagRow{"strategy", config::Family::accelerate, "fsdp_config.fsdp_sharding_strategy"},
    FlagRow{"precision", config::Family::accelerate, "mixed_precision"},
    FlagRow{"recompute", config::Family::accelerate, "fsdp_config.fsdp_activation_checkpointing"},
    FlagRow{"gradient_checkpointing", config::Family::accelerate,
            "fsdp_config.fsdp_activation_checkpointing"},
    FlagRow{"recompute", config::Family::trainer, "fsdp_config.activation_checkpointing"},
    FlagRow{"gradient_checkpointing", config::Family::trainer,
            "fsdp_config.activation_checkpointing"},
};

class FlagApplier {
 public:
  FlagApplier(config::Settings& settings, Problems& problems)
      : settings_(settings), problems_(problems) {}

  // Returns whether the file has a key for the flag.
  bool apply(const FlagValue& flag) {
    const std::string name = name_of_flag(flag.flag);
    const bool is_deepspeed = settings_.family() == config::Family::deepspeed;
    if (is_deepspeed && name == "offload") return set_offload(flag);
    if (is_deepspeed && name == "precision") return set_precision(flag);
    if (is_deepspeed && name == "strategy") return set_stage_of_strategy(flag);
    if (is_deepspeed && name == "sharding_factor") return set_stage_of_factor(flag);
    if (name == "schedule" && is_trainer_schedule(flag.value)) return false;
    if (name == "warmup" && share_of_steps(flag.value)) return false;
    for (const FlagRow& row : kFlagRows) {
      if (row.flag != name || row.family != settings_.family() || !is_read(row.path)) continue;
      const bool is_beta = name == "adam_beta1" || name == "adam_beta2";
      set(flag, std::string(row.path), is_beta ? betas(name, flag.value) : flag.value,
          row.overrides);
      return true;
    }
    return false;
  }

 private:
  // Keys of fsdp_config count in FSDP's files only; another key may set the strategy already.
  bool is_read(std::string_view path) const {
    if (settings_.family() != config::Family::accelerate || !path.starts_with("fsdp_config."))
      return true;
    if (settings_.get<std::string>("distributed_type").value != "FSDP") return false;
    return !path.ends_with("sharding_strategy") ||
           !settings_.has("fsdp_config.fsdp_reshard_after_forward");
  }

  // Both betas as one list; the other one keeps its value.
  std::string betas(std::string_view name, const std::string& value) const {
    const auto now = settings_.get<std::vector<double>>("optimizer.params.betas").value;
    const bool is_first = name == "adam_beta1";
    const double other = now.size() == 2 ? now[is_first ? 1 : 0] : is_first ? 0.999 : 0.9;
    return is_first ? fmt::format("[{}, {}]", value, other) : fmt::format("[{}, {}]", other, value);
  }

  // An unknown word is left to the Plan's flags, which report it.
  bool set_offload(const FlagValue& flag) {
    const auto words = config::offload_words(flag.value);
    if (!words) return false;
    const auto set_target = [&](const std::string& section) {
      set(flag, section + ".device", words->device, false);
      if (words->folder) set(flag, section + ".nvme_path", *words->folder, false);
    };
    if (words->parameters) set_target("zero_optimization.offload_param");
    if (words->optimizer) set_target("zero_optimization.offload_optimizer");
    return true;
  }

  // DeepSpeed has a switch for each dtype; if one contradicts the flag, the other is not set.
  bool set_precision(const FlagValue& flag) {
    const auto name = accelerate_choice("mixed_precision", flag.value);
    if (!name || *name == "fp8") return false;
    const size_t before = problems_.errors.size();
    for (const std::string_view dtype : {"fp16", "bf16"}) {
      if (*name != dtype) set(flag, fmt::format("{}.enabled", dtype), "false", false);
    }
    if (*name != "no" && problems_.errors.size() == before) {
      set(flag, *name + ".enabled", "true", false);
    }
    return true;
  }

  // A sharding factor: where the file names no stage, the whole model is sharded (stage 3).
  bool set_stage_of_factor(const FlagValue& flag) {
    const config::Settings::Entry* said = settings_.find(kStage);
    const bool is_free = said == nullptr || said->origin.from == Origin::From::fallback;
    if (is_free && flag.value != "1") {
      settings_.put(kStage, config::ConfigNode::of_integer(3),
                    {.from = Origin::From::derived, .key = std::string(kStage), .note = flag.flag});
    }
    return false;
  }

  // The file's own key shows what a strategy shards; the Plan takes the strategy itself.
  bool set_stage_of_strategy(const FlagValue& flag) {
    const auto strategy = accelerate_choice("fsdp_config.fsdp_sharding_strategy", flag.value);
    if (!strategy) return false;
    const config::Settings::Entry* said = settings_.find(kStage);
    const bool is_bound = said != nullptr && binds_flags(said->origin);
    if (is_bound && !config::is_same_sharding(*strategy, said->value.integer)) {
      problems_.errors.push_back(contradiction(said->origin, said->value.text, flag));
      return true;
    }
    if (is_bound) return true;
    settings_.put(kStage, config::ConfigNode::of_integer(*strategy == "NO_SHARD" ? 0 : 3),
                  {.from = Origin::From::flag, .key = std::string(kStage), .note = flag.flag});
    return false;
  }

  void set(const FlagValue& flag, const std::string& path, const std::string& value,
           bool overrides) {
    const config::Settings::Entry* entry = settings_.find(path);
    const bool was_said = entry != nullptr && !settings_.is_auto(path) &&
                          (binds_flags(entry->origin) || overridden_.contains(path));
    const config::ConfigNode before = was_said ? entry->value : config::ConfigNode{};
    // Two flags may set the two betas: both messages name the place in the file.
    const Origin said =
        was_said ? overridden_.try_emplace(path, entry->origin).first->second : Origin{};
    settings_.override_with(path, value, {.from = Origin::From::flag, .note = flag.flag},
                            problems_);
    const config::Settings::Entry* after = settings_.find(path);
    if (!was_said || after == nullptr || config::same_value(before, after->value)) return;
    if (overrides) {
      problems_.warnings.push_back(
          overridden(said, text_of(before), flag.flag, text_of(after->value)));
      return;
    }
    problems_.errors.push_back(contradiction(said, text_of(before), flag));
    settings_.put(path, before, said);
  }

  std::map<std::string, Origin> overridden_;  // where the values came from that flags replaced
  config::Settings& settings_;
  Problems& problems_;
};

}  // namespace

std::optional<double> share_of_steps(std::string_view text) {
  double share = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, share);
  const bool is_share = problem == std::errc() && stop == end && share > 0 && share < 1;
  return is_share ? std::optional(share) : std::nullopt;
}

bool is_trainer_schedule(std::string_view name) {
  return std::find(kTrainerSchedules.begin(), kTrainerSchedules.end(), name) !=
         kTrainerSchedules.end();
}

std::optional<std::string> accelerate_choice(std::string_view path, std::string_view value) {
  const config::ValueType& type =
      config::Schema::of(config::Family::accelerate).find(path).front()->type;
  config::CheckedValue checked =
      config::check_value(config::ConfigNode::of_text(std::string(value)), type, false);
  return checked.value ? std::optional(std::move(checked.value->text)) : std::nullopt;
}

std::string text_of(const config::ConfigNode& value) {
  if (value.kind == config::NodeKind::list && value.items.size() == 1)
    return text_of(value.items[0]);
  return value.text.empty() ? config::to_json(value) : value.text;
}

std::string name_of_flag(std::string_view flag) {
  return config::plain_name(flag.substr(flag.starts_with("--") ? 2 : 0));
}

bool binds_flags(const Origin& origin) {
  return origin.from == Origin::From::file || origin.from == Origin::From::flag;
}

namespace {

// A flag with the key's own name is shown without the key.
std::string key_to_show(const Origin& said) {
  const bool is_flag = said.from == Origin::From::flag;
  return is_flag && name_of_flag(said.note) == name_of_flag(said.key) ? "" : said.key;
}

}  // namespace

Problem contradiction(const Origin& said, std::string_view value, const FlagValue& flag) {
  const bool is_flag = said.file.empty();
  return {.file = is_flag ? said.note : said.file,
          .line = said.line,
          .key = key_to_show(said),
          .message = fmt::format("is {}, but {} is {}", value, flag.flag, flag.value),
          .suggestion = is_flag ? "keep one of them" : "leave out the flag, or change the key"};
}

Problem overridden(const Origin& said, std::string_view value, std::string_view flag,
                   std::string_view by) {
  return {.file = said.file.empty() ? said.note : said.file,
          .line = said.line,
          .key = key_to_show(said),
          .message = fmt::format("is {}, {} makes it {}", value, flag, by)};
}

std::vector<FlagValue> apply_flags(config::Settings& settings, std::span<const FlagValue> flags,
                                   Problems& problems) {
  FlagApplier applier(settings, problems);
  std::vector<FlagValue> left;
  for (const FlagValue& flag : flags) {
    if (!applier.apply(flag)) left.push_back(flag);
  }
  return left;
}

}  // namespace fullshard
