#include "fullshard/config/flags.h"

#include <fmt/format.h>

#include <array>

#include "fullshard/config/value_check.h"

namespace fullshard {
namespace {

struct FlagRow {
  std::string_view flag;  // as plain_name() writes it
  Family family;
  std::string_view path;
  bool overrides = false;
};

constexpr std::array kRows = {
    FlagRow{"optimizer", Family::deepspeed, "optimizer.type", true},
    FlagRow{"lr", Family::deepspeed, "optimizer.params.lr", true},
    FlagRow{"adam_epsilon", Family::deepspeed, "optimizer.params.eps", true},
    FlagRow{"weight_decay", Family::deepspeed, "optimizer.params.weight_decay", true},
    FlagRow{"schedule", Family::deepspeed, "scheduler.type", true},
    FlagRow{"warmup", Family::deepspeed, "scheduler.params.warmup_num_steps", true},
    FlagRow{"adam_beta1", Family::deepspeed, "optimizer.params.betas", true},
    FlagRow{"adam_beta2", Family::deepspeed, "optimizer.params.betas", true},
    FlagRow{"micro_batch", Family::deepspeed, "train_micro_batch_size_per_gpu"},
    FlagRow{"accumulate", Family::deepspeed, "gradient_accumulation_steps"},
    FlagRow{"clip", Family::deepspeed, "gradient_clipping"},
    FlagRow{"zero_stage", Family::deepspeed, "zero_optimization.stage"},
    FlagRow{"sharding_factor", Family::deepspeed, "zero_optimization.mics_shard_size"},
    FlagRow{"accumulate", Family::accelerate, "deepspeed_config.gradient_accumulation_steps"},
    FlagRow{"clip", Family::accelerate, "deepspeed_config.gradient_clipping"},
    FlagRow{"zero_stage", Family::accelerate, "deepspeed_config.zero_stage"},
    FlagRow{"strategy", Family::accelerate, "fsdp_config.fsdp_sharding_strategy"},
    FlagRow{"sharding_factor", Family::accelerate,
            "parallelism_config.parallelism_config_dp_shard_size"},
    FlagRow{"precision", Family::accelerate, "mixed_precision"},
    FlagRow{"recompute", Family::accelerate, "fsdp_config.fsdp_activation_checkpointing"},
    FlagRow{"gradient_checkpointing", Family::accelerate,
            "fsdp_config.fsdp_activation_checkpointing"},
    FlagRow{"recompute", Family::trainer, "fsdp_config.activation_checkpointing"},
    FlagRow{"gradient_checkpointing", Family::trainer, "fsdp_config.activation_checkpointing"},
};

class FlagApplier {
 public:
  FlagApplier(Settings& settings, Problems& problems) : settings_(settings), problems_(problems) {}

  void apply(const FlagValue& flag) {
    const std::string name =
        plain_name(std::string_view(flag.flag).substr(flag.flag.starts_with("--") ? 2 : 0));
    if (name == "precision" && settings_.family() == Family::deepspeed) {
      set_precision(flag);
      return;
    }
    if (name == "schedule" && is_trainer_schedule(flag.value)) return;
    for (const FlagRow& row : kRows) {
      if (row.flag != name || row.family != settings_.family()) continue;
      const bool is_beta = name == "adam_beta1" || name == "adam_beta2";
      set(flag, std::string(row.path), is_beta ? betas(name, flag.value) : flag.value,
          row.overrides);
    }
  }

 private:
  // Both as one list; the other one keeps its value.
  std::string betas(std::string_view name, const std::string& value) const {
    const auto now = settings_.get<std::vector<double>>("optimizer.params.betas").value;
    const bool is_first = name == "adam_beta1";
    const double other = now.size() == 2 ? now[is_first ? 1 : 0] : is_first ? 0.999 : 0.9;
    return is_first ? fmt::format("[{}, {}]", value, other) : fmt::format("[{}, {}]", other, value);
  }

  // DeepSpeed has a switch for each dtype; where one contradicts, the other must not be set too.
  void set_precision(const FlagValue& flag) {
    const size_t before = problems_.errors.size();
    for (const std::string_view dtype : {"fp16", "bf16"}) {
      if (flag.value != dtype) set(flag, fmt::format("{}.enabled", dtype), "false", false);
    }
    if (flag.value != "no" && problems_.errors.size() == before) {
      set(flag, flag.value + ".enabled", "true", false);
    }
  }

  void set(const FlagValue& flag, const std::string& path, const std::string& value,
           bool overrides) {
    const Settings::Entry* entry = settings_.find(path);
    const bool was_said = entry != nullptr && !settings_.is_auto(path) &&
                          entry->origin.from != Origin::From::fallback;
    const ConfigNode before = was_said ? entry->value : ConfigNode{};
    const Origin origin = was_said ? entry->origin : Origin{};
    settings_.override_with(path, value, {.from = Origin::From::flag, .note = flag.flag},
                            problems_);
    const Settings::Entry* after = settings_.find(path);
    if (!was_said || after == nullptr || same_value(before, after->value)) return;
    Problem problem{.file = origin.file, .line = origin.line, .key = origin.key};
    if (overrides) {
      problem.message =
          fmt::format("is {}, {} makes it {}", before.text, flag.flag, after->value.text);
      problems_.warnings.push_back(std::move(problem));
      return;
    }
    problem.message = fmt::format("is {}, but {} is {}", before.text, flag.flag, flag.value);
    problem.suggestion = "leave the flag away, or set the key to what is meant";
    problems_.errors.push_back(std::move(problem));
    settings_.put(path, before, origin);
  }

  Settings& settings_;
  Problems& problems_;
};

}  // namespace

bool is_trainer_schedule(std::string_view name) {
  return name == "constant" || name == "constant_with_warmup" || name == "linear" ||
         name == "cosine";
}

void apply_flags(Settings& settings, std::span<const FlagValue> flags, Problems& problems) {
  FlagApplier applier(settings, problems);
  for (const FlagValue& flag : flags) applier.apply(flag);
}

}  // namespace fullshard
