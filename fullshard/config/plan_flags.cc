// Flags that a family has no key for, as values of the Plan.
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <functional>

#include "fullshard/config/flags.h"
#include "fullshard/config/plan.h"
#include "fullshard/config/plan_maker.h"
#include "fullshard/config/value_check.h"

namespace fullshard {
namespace {

class PlanFlags {
 public:
  PlanFlags(Plan& plan, Problems& problems) : plan_(plan), problems_(problems) {}

  void apply(const FlagValue& flag) {
    flag_ = &flag;
    const std::string name =
        plain_name(std::string_view(flag.flag).substr(flag.flag.starts_with("--") ? 2 : 0));
    for (const Row& row : kRows) {
      if (row.name == name) (this->*row.set)();
    }
  }

 private:
  struct Row {
    std::string_view name;
    void (PlanFlags::*set)();
  };

  void optimizer() { put(plan_.optimizer.type, flag_->value); }
  void lr() { put(plan_.optimizer.lr, number(0)); }
  void beta1() { put_beta(0); }
  void beta2() { put_beta(1); }
  void epsilon() { put(plan_.optimizer.eps, number(0)); }
  void weight_decay() { put(plan_.optimizer.weight_decay, number(0)); }
  void schedule() { put(plan_.scheduler.type, flag_->value); }
  void warmup() { put(plan_.scheduler.warmup_num_steps, integer(0)); }
  void micro_batch() { put(plan_.batch.micro, std::optional(integer(1))); }
  void accumulate() { put(plan_.batch.accumulation, std::optional(integer(1))); }
  void clip() { put(plan_.clipping, number(0)); }
  void strategy() { put(plan_.sharding.strategy, flag_->value); }
  void zero_stage() { put(plan_.sharding.stage, std::optional(integer(0))); }
  void factor() { put(plan_.sharding.factor, std::optional(integer(1))); }
  void recompute() { put(plan_.recompute.enabled, flag_->value != "false"); }
  void precision() {
    put(plan_.precision.bf16, flag_->value == "bf16");
    put(plan_.precision.fp16, flag_->value == "fp16");
  }

  // A policy's name, a least number of parameters, or class names.
  void wrap() {
    const std::string name = plain_name(flag_->value);
    if (name == "no_wrap" || name == "none") {
      put(plan_.wrap.policy, std::string("NO_WRAP"));
    } else if (name == "auto") {
      put(plan_.wrap.policy, std::string("MARKED"));
    } else if (!name.empty() && name.find_first_not_of("0123456789") == std::string::npos) {
      put(plan_.wrap.policy, std::string("SIZE_BASED_WRAP"));
      put(plan_.wrap.min_num_params, integer(1));
    } else {
      put(plan_.wrap.policy, std::string("TRANSFORMER_BASED_WRAP"));
      put(plan_.wrap.classes, split_names({flag_->value}));
    }
  }

  // What came through the family's own key is there already.
  template <class T>
  void put(Setting<T>& setting, T value) {
    if (setting.origin.from == Origin::From::flag && setting.origin.note == flag_->flag) return;
    setting.value = std::move(value);
    setting.origin = {.from = Origin::From::flag, .key = flag_->flag, .note = flag_->flag};
  }

  void put_beta(size_t place) {
    auto betas = plan_.optimizer.betas.value;
    betas.at(place) = number(0);
    put(plan_.optimizer.betas, std::move(betas));
  }

  template <class T>
  T parsed(T least, std::string_view what) {
    T value{};
    const char* end = flag_->value.data() + flag_->value.size();
    const auto [stop, problem] = std::from_chars(flag_->value.data(), end, value);
    if (problem == std::errc() && stop == end && value >= least) return value;
    problems_.errors.push_back(
        {.file = flag_->flag,
         .message = fmt::format("is '{}', expected {} from {}", flag_->value, what, least)});
    return least;
  }
  double number(double least) { return parsed(least, "a number"); }
  int64_t integer(int64_t least) { return parsed(least, "a whole number"); }

  static const std::array<Row, 18> kRows;

  Plan& plan_;
  Problems& problems_;
  const FlagValue* flag_ = nullptr;
};

const std::array<PlanFlags::Row, 18> PlanFlags::kRows = {{
    {"optimizer", &PlanFlags::optimizer},
    {"lr", &PlanFlags::lr},
    {"adam_beta1", &PlanFlags::beta1},
    {"adam_beta2", &PlanFlags::beta2},
    {"adam_epsilon", &PlanFlags::epsilon},
    {"weight_decay", &PlanFlags::weight_decay},
    {"schedule", &PlanFlags::schedule},
    {"warmup", &PlanFlags::warmup},
    {"micro_batch", &PlanFlags::micro_batch},
    {"accumulate", &PlanFlags::accumulate},
    {"clip", &PlanFlags::clip},
    {"strategy", &PlanFlags::strategy},
    {"zero_stage", &PlanFlags::zero_stage},
    {"sharding_factor", &PlanFlags::factor},
    {"precision", &PlanFlags::precision},
    {"recompute", &PlanFlags::recompute},
    {"gradient_checkpointing", &PlanFlags::recompute},
    {"wrap", &PlanFlags::wrap},
}};

}  // namespace

void apply_flags(Plan& plan, std::span<const FlagValue> flags, Problems& problems) {
  if (!problems.ok()) return;  // what contradicts the file must not hide it
  PlanFlags applier(plan, problems);
  for (const FlagValue& flag : flags) applier.apply(flag);
}

}  // namespace fullshard
