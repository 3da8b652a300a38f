// SPDX-License-Identifier: Apache-2.0
// Flags that a family has no key for, as values of the Plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <limits>

#include "fullshard/base/bytes.h"
#include "fullshard/config/flags.h"
#include "fullshard/config/offload.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/schedule_args.h"
#include "fullshard/config/schema/value_check.h"
#include "fullshard/config/sharding_flags.h"

namespace fullshard {
namespace {

std::string shown(const std::string& value) { return value; }
std::string shown(bool value) { return value ? "true" : "false"; }
std::string shown(double value) { return config::format_number(value); }
std::string shown(int64_t value) { return fmt::format("{}", value); }
template <class T>
std::string shown(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}
std::string shown(const TrainerScheduleArgs& args) { return args.text; }
template <class T>
std::string shown(const std::optional<T>& value) {
  return value ? shown(*value) : "none";
}

class PlanFlags {
 public:
  PlanFlags(Plan& plan, Problems& problems) : plan_(plan), problems_(problems) {}

  void apply(const FlagValue& flag) {
    flag_ = &flag;
    const std::string name = name_of_flag(flag.flag);
    for (const Row& row : kRows) {
      if (row.name != name) continue;
      overrides_ = row.overrides;
      (this->*row.set)();
    }
  }

 private:
  struct Row {
    std::string_view name;
    void (PlanFlags::*set)();
    bool overrides = false;  // of optimizer and schedule
  };

  void optimizer() {
    put_choice(plan_.optimizer.type, type_of(config::Family::deepspeed, "optimizer.type"));
  }
  void lr() { put(plan_.optimizer.lr, number()); }
  void beta1() { put_beta(0); }
  void beta2() { put_beta(1); }
  void epsilon() { put(plan_.optimizer.eps, number()); }
  void weight_decay() { put(plan_.optimizer.weight_decay, number()); }
  // DeepSpeed's names and the Trainer's.
  void schedule() {
    put_choice(
        plan_.scheduler.type,
        config::schema::any_case("WarmupLR|WarmupDecayLR|WarmupCosineLR|OneCycle|LRRangeTest|"
                                 "constant|constant_with_warmup|linear|cosine|"
                                 "cosine_with_restarts|polynomial|inverse_sqrt|"
                                 "cosine_with_min_lr|cosine_warmup_with_min_lr|"
                                 "warmup_stable_decay"));
  }
  // For the schedule at that point: flags come after the file, and --schedule before its arguments.
  void schedule_args() {
    const auto& type = *plan_.scheduler.type;
    try {
      put(plan_.scheduler.trainer, config::parse_schedule_args(flag_->value, type));
    } catch (const Error& error) {
      problems_.errors.push_back({.file = flag_->flag, .message = error.what()});
    }
  }
  // A number of steps, or below 1 a share of them.
  void warmup() {
    const auto share = share_of_steps(flag_->value);
    if (!share) return put(plan_.scheduler.warmup_num_steps, integer(0));
    const auto& steps = plan_.scheduler.warmup_num_steps;
    if (is_said(steps.origin)) {
      problems_.warnings.push_back(
          overridden(steps.origin, shown(steps.value), flag_->flag, flag_->value));
    }
    put(plan_.scheduler.warmup_share, share);
  }
  void micro_batch() { put(plan_.batch.micro, std::optional(integer(1))); }
  void accumulate() { put(plan_.batch.accumulation, std::optional(integer(1))); }
  void clip() { put(plan_.clipping, number()); }
  void drop_last() { put(plan_.batch.drop_last, flag_->value != "false"); }
  void node_local() { put(plan_.checkpoint.node_local, flag_->value != "false"); }
  void recompute() { put(plan_.recompute.enabled, flag_->value != "false"); }
  void strategy() {
    if (const auto name =
            choice(type_of(config::Family::accelerate, "fsdp_config.fsdp_sharding_strategy"))) {
      config::apply_strategy(plan_, *flag_, *name, problems_);
    }
  }
  void zero_stage() { apply_number(0, 3, config::apply_stage); }
  void factor() { apply_number(1, std::numeric_limits<int64_t>::max(), config::apply_factor); }
  void precision() {
    const auto name = choice(type_of(config::Family::accelerate, "mixed_precision"));
    if (!name) return;
    put(plan_.precision.bf16, *name == "bf16" || *name == "fp8");
    put(plan_.precision.fp16, *name == "fp16");
    put(plan_.precision.fp8, *name == "fp8");
  }

  void offload() {
    const auto words = config::offload_words(flag_->value);
    if (!words) {
      problems_.errors.push_back(
          {.file = flag_->flag, .message = config::offload_words_problem(flag_->value)});
      return;
    }
    if (words->parameters) put_target(plan_.offload.parameters, *words);
    if (words->optimizer) put_target(plan_.offload.optimizer, *words);
  }
  // The flag may be repeated: for different things, or with the same value.
  void put_target(OffloadTarget& target, const config::OffloadWords& words) {
    const bool is_repeated = target.device.origin.note == flag_->flag;
    if (is_repeated && (*target.device != words.device || *target.nvme_path != words.folder)) {
      problems_.errors.push_back({.file = flag_->flag,
                                  .message = fmt::format("is '{}', but an earlier one says {}",
                                                         flag_->value, shown(*target.device)),
                                  .suggestion = "keep one of them"});
      return;
    }
    put(target.device, words.device);
    if (words.folder) put(target.nvme_path, words.folder);
  }
  void offload_ratio() {
    if (const auto ratio = parsed(0.0, 1.0, "a number")) put(plan_.offload.ratio, *ratio);
  }

  void offload_resident() {
    const auto bytes = parse_bytes(flag_->value);
    if (bytes) return put(plan_.offload.resident_bytes, bytes);
    problems_.errors.push_back(
        {.file = flag_->flag,
         .message = fmt::format("is '{}', expected a size such as 20GB", flag_->value)});
  }

  void offload_step() {
    const std::string name = config::plain_name(flag_->value);
    const bool is_word = name == "auto" || name == "device" || name == "host";
    if (!is_word && !config::share_of_step(flag_->value)) {
      problems_.errors.push_back(
          {.file = flag_->flag,
           .message =
               fmt::format("is '{}', expected auto, device, host, or the host's share from 0 to 1",
                           flag_->value)});
      return;
    }
    put(plan_.offload.step, is_word ? name : flag_->value);
  }

  // Sets both, so that a file with another value is a contradiction.
  void report_to() {
    const auto name = choice(config::schema::any_case("none|tensorboard|csv|all"));
    if (!name) return;
    put(plan_.logging.tensorboard.enabled, *name == "tensorboard" || *name == "all");
    put(plan_.logging.csv_monitor.enabled, *name == "csv" || *name == "all");
  }

  // A policy's name, a least number of parameters, or class names.
  void wrap() {
    const std::string name = config::plain_name(flag_->value);
    WrapPlanSettings& wrap = plan_.wrap;
    if (name == "no_wrap" || name == "none") {
      put(wrap.policy, std::string("NO_WRAP"));
    } else if (name == "auto") {  // the model's own blocks
      if (put_policy("TRANSFORMER_BASED_WRAP")) put(wrap.classes, std::vector<std::string>{});
    } else if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos) {
      if (put_policy("SIZE_BASED_WRAP")) put(wrap.min_num_params, integer(1));
    } else if (put_policy("TRANSFORMER_BASED_WRAP")) {
      put(wrap.classes, config::split_names({flag_->value}));
    }
  }
  // One error per flag is enough: values of another policy are not compared.
  bool put_policy(std::string policy) {
    const size_t before = problems_.errors.size();
    put(plan_.wrap.policy, std::move(policy));
    return problems_.errors.size() == before;
  }

  template <class T>
  void put(Setting<T>& setting, T value) {
    const Origin& said = setting.origin;
    const bool is_same = setting.value == value;
    if (is_said(said) && is_same) return;
    if (is_said(said) && !overrides_) {
      problems_.errors.push_back(
          contradiction(said, config::said_value(plan_, said, shown(setting.value)), *flag_));
      return;
    }
    if (is_said(said)) {
      problems_.warnings.push_back(
          overridden(said, shown(setting.value), flag_->flag, shown(value)));
    }
    setting.value = std::move(value);
    setting.origin = {.from = Origin::From::flag, .key = flag_->flag, .note = flag_->flag};
  }
  // One flag may set several values, and two flags the two betas.
  bool is_said(const Origin& origin) const {
    const bool is_override = origin.from == Origin::From::flag && origin.note != "--set";
    return binds_flags(origin) && origin.note != flag_->flag && !(overrides_ && is_override);
  }

  void put_beta(size_t place) {
    auto betas = plan_.optimizer.betas.value;
    betas.at(place) = number();
    put(plan_.optimizer.betas, std::move(betas));
  }

  static const config::ValueType& type_of(config::Family family, std::string_view path) {
    return config::Schema::of(family).find(path).front()->type;
  }
  // The flag's value as one of the choices; a problem and nullopt when it is not one of them.
  std::optional<std::string> choice(const config::ValueType& type) {
    config::CheckedValue checked =
        config::check_value(config::ConfigNode::of_text(flag_->value), type, false);
    if (checked.value) return checked.value->text;
    problems_.errors.push_back({.file = flag_->flag,
                                .message = std::move(checked.message),
                                .suggestion = std::move(checked.suggestion),
                                .is_name = checked.is_name});
    return std::nullopt;
  }
  void put_choice(Setting<std::string>& setting, const config::ValueType& type) {
    if (auto name = choice(type)) put(setting, std::move(*name));
  }

  template <class T>
  std::optional<T> parsed(T least, T most, std::string_view what) {
    T value{};
    const char* end = flag_->value.data() + flag_->value.size();
    const auto [stop, problem] = std::from_chars(flag_->value.data(), end, value);
    if (problem == std::errc() && stop == end && value >= least && value <= most) return value;
    const bool is_open = most == std::numeric_limits<T>::max();
    problems_.errors.push_back(
        {.file = flag_->flag,
         .message = fmt::format("is '{}', expected {} from {}{}", flag_->value, what, least,
                                is_open ? "" : fmt::format(" to {}", most))});
    return std::nullopt;
  }
  double number() {
    return parsed(0.0, std::numeric_limits<double>::max(), "a number").value_or(0.0);
  }
  int64_t integer(int64_t least) {
    return parsed(least, std::numeric_limits<int64_t>::max(), "a whole number").value_or(least);
  }
  void apply_number(int64_t least, int64_t most,
                    void (*act)(Plan&, const FlagValue&, int64_t, Problems&)) {
    if (const auto value = parsed(least, most, "a whole number")) {
      act(plan_, *flag_, *value, problems_);
    }
  }

  static const std::array<Row, 26> kRows;

  Plan& plan_;
  Problems& problems_;
  const FlagValue* flag_ = nullptr;
  bool overrides_ = false;
};

const std::array<PlanFlags::Row, 26> PlanFlags::kRows = {{
    {"optimizer", &PlanFlags::optimizer, true},
    {"lr", &PlanFlags::lr, true},
    {"adam_beta1", &PlanFlags::beta1, true},
    {"adam_beta2", &PlanFlags::beta2, true},
    {"adam_epsilon", &PlanFlags::epsilon, true},
    {"weight_decay", &PlanFlags::weight_decay, true},
    {"schedule", &PlanFlags::schedule, true},
    {"schedule_args", &PlanFlags::schedule_args, true},
    {"warmup", &PlanFlags::warmup, true},
    {"micro_batch", &PlanFlags::micro_batch},
    {"accumulate", &PlanFlags::accumulate},
    {"clip", &PlanFlags::clip},
    {"drop_last", &PlanFlags::drop_last},
    {"node_local", &PlanFlags::node_local},
    {"strategy", &PlanFlags::strategy},
    {"zero_stage", &PlanFlags::zero_stage},
    {"sharding_factor", &PlanFlags::factor},
    {"precision", &PlanFlags::precision},
    {"recompute", &PlanFlags::recompute},
    {"gradient_checkpointing", &PlanFlags::recompute},
    {"offload", &PlanFlags::offload},
    {"offload_ratio", &PlanFlags::offload_ratio},
    {"offload_resident", &PlanFlags::offload_resident},
    {"offload_step", &PlanFlags::offload_step},
    {"wrap", &PlanFlags::wrap},
    {"report_to", &PlanFlags::report_to},
}};

}  // namespace

void apply_flags(Plan& plan, std::span<const FlagValue> flags, Problems& problems) {
  PlanFlags applier(plan, problems);
  for (const FlagValue& flag : flags) applier.apply(flag);
}

}  // namespace fullshard
