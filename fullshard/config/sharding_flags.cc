// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/sharding_flags.h"

#include <fmt/format.h>

#include "fullshard/config/plan.h"

namespace fullshard::config {
namespace {

Origin from_flag(const FlagValue& flag) {
  return {.from = Origin::From::flag, .key = flag.flag, .note = flag.flag};
}

// What the Plan says about sharding, and where that comes from.
class SaidSharding {
 public:
  SaidSharding(Plan& plan, const FlagValue& flag, Problems& problems)
      : plan_(plan), sharding_(plan.sharding), flag_(flag), problems_(problems) {}

  bool binds_stage() const {
    return sharding_.stage.value && binds(sharding_.stage.origin, flag_.flag);
  }
  bool binds_release() const {
    return sharding_.reshard_after_forward.value &&
           binds(sharding_.reshard_after_forward.origin, flag_.flag);
  }
  bool binds_strategy() const { return binds(sharding_.strategy.origin, flag_.flag); }

  void contradict(const Origin& origin, std::string fallback) {
    problems_.errors.push_back(
        contradiction(origin, said_value(plan_, origin, std::move(fallback)), flag_));
  }
  void contradict_stage() {
    contradict(sharding_.stage.origin, fmt::format("{}", *sharding_.stage.value));
  }
  void contradict_release() {
    contradict(sharding_.reshard_after_forward.origin,
               *sharding_.reshard_after_forward.value ? "true" : "false");
  }
  void contradict_strategy() { contradict(sharding_.strategy.origin, sharding_.strategy.value); }

  // A flag decides: defaults for the same thing no longer count.
  void forget_defaults() {
    if (!binds_release()) sharding_.reshard_after_forward = {std::nullopt, Origin{}};
    if (!binds_stage()) sharding_.stage = {std::nullopt, Origin{}};
  }

 private:
  static bool binds(const Origin& origin, std::string_view flag) {
    return binds_flags(origin) && origin.note != flag;
  }

  Plan& plan_;
  ShardingPlan& sharding_;
  const FlagValue& flag_;
  Problems& problems_;
};

}  // namespace

bool is_same_sharding(std::string_view strategy, int64_t stage) {
  return (strategy == "FULL_SHARD" && stage == 3) || (strategy == "SHARD_GRAD_OP" && stage == 2) ||
         (strategy == "NO_SHARD" && stage == 0);
}

bool releases_after_forward(std::string_view strategy) {
  return strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD";
}

bool agrees_with_release(std::string_view strategy, bool releases) {
  return strategy != "NO_SHARD" && releases_after_forward(strategy) == releases;
}

Setting<std::string> strategy_in_effect(const ShardingPlan& sharding) {
  const std::string& said = *sharding.strategy;
  const std::optional<bool>& releases = *sharding.reshard_after_forward;
  if (!releases || said == "NO_SHARD" || agrees_with_release(said, *releases)) {
    return sharding.strategy;
  }
  const bool is_hybrid = said.starts_with("HYBRID");
  const char* meant = *releases ? (is_hybrid ? "HYBRID_SHARD" : "FULL_SHARD")
                                : (is_hybrid ? "HYBRID_SHARD_ZERO2" : "SHARD_GRAD_OP");
  return {meant, sharding.reshard_after_forward.origin};
}

std::string said_value(const Plan& plan, const Origin& origin, std::string fallback) {
  for (const Settings* settings : {plan.settings(), plan.deepspeed()}) {
    if (settings == nullptr) continue;
    for (const auto& [path, entry] : settings->entries()) {
      if (entry.origin.key == origin.key && entry.origin.line == origin.line) {
        return text_of(entry.value);
      }
    }
  }
  return fallback;
}

void apply_strategy(Plan& plan, const FlagValue& flag, const std::string& strategy,
                    Problems& problems) {
  SaidSharding said(plan, flag, problems);
  ShardingPlan& sharding = plan.sharding;
  if (said.binds_stage()) {
    if (!is_same_sharding(strategy, *sharding.stage.value)) said.contradict_stage();
    return;
  }
  if (said.binds_release() &&
      !agrees_with_release(strategy, *sharding.reshard_after_forward.value)) {
    return said.contradict_release();
  }
  if (said.binds_strategy()) {
    if (sharding.strategy.value != strategy) said.contradict_strategy();
    return;
  }
  said.forget_defaults();
  sharding.strategy = {strategy, from_flag(flag)};
}

void apply_stage(Plan& plan, const FlagValue& flag, int64_t stage, Problems& problems) {
  SaidSharding said(plan, flag, problems);
  ShardingPlan& sharding = plan.sharding;
  if (said.binds_strategy()) {
    if (!is_same_sharding(sharding.strategy.value, stage)) said.contradict_strategy();
    return;
  }
  if (said.binds_release()) {
    if (stage != (*sharding.reshard_after_forward.value ? 3 : 2)) said.contradict_release();
    return;
  }
  said.forget_defaults();
  sharding.stage = {stage, from_flag(flag)};
}

void apply_factor(Plan& plan, const FlagValue& flag, int64_t factor, Problems& problems) {
  SaidSharding said(plan, flag, problems);
  ShardingPlan& sharding = plan.sharding;
  const bool shards_nothing =
      sharding.stage.value ? *sharding.stage.value == 0 : sharding.strategy.value == "NO_SHARD";
  if (shards_nothing && factor > 1) {
    return sharding.stage.value ? said.contradict_stage() : said.contradict_strategy();
  }
  const Setting<std::optional<int64_t>>& given = sharding.factor;
  if (binds_flags(given.origin) && given.value != factor) {
    return said.contradict(given.origin,
                           given.value ? fmt::format("{}", *given.value) : std::string("none"));
  }
  sharding.factor = {factor, from_flag(flag)};
}

}  // namespace fullshard::config
