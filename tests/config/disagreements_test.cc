// SPDX-License-Identifier: Apache-2.0
// Two settings of the same thing: an error where they differ, and one value where they are shown.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/config/effective_settings.h"
#include "fullshard/config/explain.h"
#include "fullshard/config/headline.h"
#include "fullshard/config/plan.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::config {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::message_of;
using ::testing::StartsWith;
using testing::TemporaryFolder;

std::vector<std::string> errors_of(const std::string& text, const PlanOptions& options = {}) {
  std::vector<std::string> lines;
  for (const Problem& problem : read_plan(text, "f", options).problems.errors) {
    lines.push_back(problem.text());
  }
  return lines;
}
std::vector<std::string> warnings_of(const std::string& text, const PlanOptions& options = {}) {
  const PlanReading reading = read_plan(text, "f", options);
  EXPECT_TRUE(reading.problems.ok()) << reading.problems.text();
  std::vector<std::string> lines;
  for (const Problem& problem : reading.problems.warnings) lines.push_back(problem.text());
  return lines;
}
json explained_row(const Plan& plan) { return json::parse(explain(plan, 2).json()); }
std::string shown_strategy(const Plan& plan) {
  for (const auto& row : effective_settings(plan, {}, 2, [](auto) { return false; })) {
    if (row.flag == "--strategy") return row.value + " " + row.origin;
  }
  return "";
}

TEST(TrainerKeys, ThatContradictTheWordsAreErrors) {
  EXPECT_THAT(
      errors_of(
          R"({"fsdp": "full_shard", "fsdp_config": {"version": 1, "reshard_after_forward": "no_shard"}})"),
      ElementsAre("f:1: fsdp_config.reshard_after_forward: is no_shard, but fsdp says full_shard; "
                  "keep one of them"));
  EXPECT_THAT(
      errors_of(R"({"fsdp": "full_shard offload", "fsdp_config": {"cpu_offload": false}})"),
      ElementsAre("f:1: fsdp_config.cpu_offload: is false, but fsdp says offload; keep one of "
                  "them"));
  EXPECT_THAT(
      errors_of(R"({"fsdp": "shard_grad_op", "fsdp_config": {"reshard_after_forward": true}})"),
      ElementsAre("f:1: fsdp_config.reshard_after_forward: is true, but fsdp says shard_grad_op; "
                  "keep one of them"));
}

TEST(TrainerKeys, ThatContradictTheFlagNameIt) {
  const TemporaryFolder folder;
  const std::string file = folder.file("c.json");
  std::ofstream(file) << R"({"reshard_after_forward": true})";
  EXPECT_EQ(message_of([&] { Plan::from_words("shard_grad_op", file); }),
            file +
                ":1: reshard_after_forward: is true, but --fsdp says shard_grad_op; keep one of "
                "them");
}

TEST(TrainerKeys, ThatAgreeWithTheWordsAreFine) {
  for (
      const char* text :
      {R"({"fsdp": "full_shard", "fsdp_config": {"version": 1, "reshard_after_forward": "FULL_SHARD"}})",
       R"({"fsdp": "full_shard offload", "fsdp_config": {"cpu_offload": true}})",
       R"({"fsdp": "shard_grad_op", "fsdp_config": {"reshard_after_forward": false}})",
       R"({"fsdp": "hybrid_shard", "fsdp_config": {"reshard_after_forward": "true"}})"}) {
    EXPECT_THAT(errors_of(text), IsEmpty()) << text;
  }
}

TEST(TrainerKeys, ShowWhatTheWordsAndTheLeastSizeMakeOfThem) {
  const Plan plan = Plan::parse(
      R"({"fsdp": "full_shard offload auto_wrap", "fsdp_config": {"min_num_params": 4000}})");
  const json keys = explained_row(plan);
  EXPECT_EQ(plan.wrap.policy.value, "SIZE_BASED_WRAP");
  EXPECT_EQ(keys["fsdp_config.auto_wrap_policy"]["value"], "SIZE_BASED_WRAP");
  EXPECT_EQ(keys["fsdp_config.auto_wrap_policy"]["origin"], "derived");
  EXPECT_EQ(keys["fsdp_config.cpu_offload"]["value"], true);
}

TEST(Strategy, IsShownAsReshardAfterForwardMakesIt) {
  const auto plan_of = [](const std::string& keys) {
    return Plan::parse("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n" + keys, "f");
  };
  const Plan kept = plan_of("  fsdp_reshard_after_forward: false\n");
  EXPECT_THAT(headline(kept, 2), StartsWith("SHARD_GRAD_OP, "));
  EXPECT_EQ(shown_strategy(kept), "\"SHARD_GRAD_OP\" f:4");
  EXPECT_EQ(shown_strategy(plan_of("  fsdp_reshard_after_forward: true\n")),
            "\"FULL_SHARD\" default");
  const Plan trainers = Plan::parse(R"({"fsdp_config": {"reshard_after_forward": false}})", "f");
  EXPECT_EQ(shown_strategy(trainers), "\"SHARD_GRAD_OP\" f:1");
}

TEST(Strategy, BesideAnotherReshardAfterForwardIsAnErrorInBothVersions) {
  EXPECT_THAT(errors_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                        "  fsdp_reshard_after_forward: true\n"),
              ElementsAre("f:5: fsdp_config.fsdp_reshard_after_forward: is true, but "
                          "fsdp_sharding_strategy is SHARD_GRAD_OP; keep one of them"));
  EXPECT_THAT(errors_of("distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                        "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                        "  fsdp_reshard_after_forward: false\n"),
              IsEmpty());
}

TEST(SetFlag, GivenTwiceForOneKeyIsAnErrorWhereTheValuesDiffer) {
  EXPECT_THAT(
      errors_of("{}", {.overrides = {"optimizer.params.lr=0.1", "optimizer.params.lr=0.2"}}),
      ElementsAre("--set: optimizer.params.lr: is 0.2, but an earlier one says 0.1; keep "
                  "one of them"));
  EXPECT_THAT(
      errors_of("{}", {.overrides = {"optimizer.params.lr=0.1", "optimizer.params.lr=1e-1"}}),
      IsEmpty());
}

TEST(SetFlag, OfASectionSaysHowItsKeysAreSet) {
  EXPECT_THAT(errors_of("{}", {.overrides = {R"(zero_optimization={"stage":3})"}}),
              ElementsAre("--set: zero_optimization: is a section, expected one of its keys; write "
                          "--set zero_optimization.KEY=VALUE for each of them"));
}

TEST(ScheduleFlag, TakesTheFilesScheduleOutOfWhatIsShown) {
  const Plan plan = Plan::parse(
      R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.5,
          "warmup_num_steps": 7}}})",
      "f", {.flags = {{"--schedule", "cosine"}}});
  const json keys = explained_row(plan);
  EXPECT_EQ(keys["--schedule"]["value"], "cosine");
  EXPECT_FALSE(keys.contains("scheduler.type"));
  EXPECT_FALSE(keys.contains("scheduler.params.warmup_max_lr"));
  EXPECT_EQ(keys["scheduler.params.warmup_num_steps"]["value"], 7);  // cosine uses it too
}

TEST(DropLastFlag, BesideAKeyThatSaysFalseIsAnError) {
  EXPECT_THAT(errors_of(R"({"dataloader_drop_last": false})", {.flags = {{"--drop-last", "true"}}}),
              ElementsAre("f:1: dataloader_drop_last: is false, but --drop-last is true; leave out "
                          "the flag, or change the key"));
  const Plan plan =
      Plan::parse("distributed_type: FSDP\n", "f", {.flags = {{"--drop-last", "true"}}});
  EXPECT_TRUE(plan.batch.drop_last.value);
}

TEST(Cycle, OfMomentaInTheWrongOrderIsAnError) {
  const auto cycle = [](const std::string& momenta) {
    return R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1,
      "cycle_max_lr": 0.2, )" +
           momenta + "}}}";
  };
  EXPECT_THAT(
      errors_of(cycle(R"("cycle_min_mom": 0.99, "cycle_max_mom": 0.8)")),
      ElementsAre("f:2: scheduler.params.cycle_min_mom: is 0.99, but cycle_max_mom is 0.8"));
  EXPECT_THAT(errors_of(cycle(R"("cycle_max_mom": 0.5)")),
              ElementsAre("f:2: scheduler.params.cycle_max_mom: is 0.5, but cycle_min_mom is 0.8"));
  EXPECT_THAT(
      errors_of(cycle(R"("cycle_momentum": false, "cycle_min_mom": 0.99, "cycle_max_mom": 0.8)")),
      IsEmpty());
}

TEST(WarmUp, FromAboveTheOptimizersRateIsAnError) {
  EXPECT_THAT(errors_of(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.5, "warmup_num_steps": 9}}})"),
              ElementsAre("f:2: scheduler.params.warmup_min_lr: is 0.5, but the optimizer's lr is "
                          "0.001"));
}

TEST(UnusedFlags, AreWarnedAbout) {
  const std::string file = "distributed_type: FSDP\n";
  EXPECT_THAT(warnings_of(file, {.flags = {{"--optimizer", "SGD"}, {"--adam-beta1", "0.5"}}}),
              ElementsAre("--adam-beta1: has no effect with the optimizer SGD"));
  EXPECT_THAT(warnings_of(file, {.flags = {{"--optimizer", "Lion"},
                                           {"--adam-beta1", "0.5"},
                                           {"--adam-epsilon", "1e-6"}}}),
              ElementsAre("--adam-epsilon: has no effect with the optimizer Lion"));
  EXPECT_THAT(warnings_of(file, {.flags = {{"--schedule", "constant"}, {"--warmup", "5"}}}),
              ElementsAre("--warmup: has no effect with the schedule constant"));
  EXPECT_THAT(warnings_of(file, {.flags = {{"--offload-ratio", "0.5"},
                                           {"--offload-resident", "1GB"},
                                           {"--offload-step", "host"}}}),
              ElementsAre("--offload-ratio: has no effect without --offload",
                          "--offload-resident: has no effect without --offload",
                          "--offload-step: has no effect without --offload"));
  EXPECT_THAT(warnings_of(file, {.flags = {{"--offload", "optimizer"}, {"--offload-step", "host"}},
                                 .device = "cuda"}),
              IsEmpty());
}

TEST(LeastSize, OfUnitsWithoutASizeBasedPolicyIsWarnedAbout) {
  EXPECT_THAT(warnings_of("distributed_type: FSDP\nfsdp_config:\n"
                          "  fsdp_auto_wrap_policy: NO_WRAP\n  fsdp_min_num_params: 4000\n"),
              ElementsAre("f:4: fsdp_config.fsdp_min_num_params: without effect: the wrap policy "
                          "is NO_WRAP"));
}

TEST(Precision, OfTheOldFormIsNamedAsItIs) {
  EXPECT_THAT(warnings_of("distributed_type: FSDP\nfp16: false\n"),
              ElementsAre("f:2: fp16: is the old form of mixed_precision: no"));
}

TEST(Offload, OfAllToTheHostIsNotedOnceOnACpu) {
  EXPECT_THAT(
      warnings_of("distributed_type: FSDP\n", {.flags = {{"--offload", "all"}}, .device = "cpu"}),
      ElementsAre("--offload: on a CPU device host memory holds everything already: nothing is "
                  "moved"));
}

TEST(UnknownKey, ThatOneKeyHoldsSuggestsIt) {
  EXPECT_THAT(
      errors_of(R"({"fsdp": "full_shard", "fsdp_config": {"transformer_layer_cls": "Block"}})"),
      ElementsAre("f:1: fsdp_config.transformer_layer_cls: unknown key; did you mean "
                  "'fsdp_config.transformer_layer_cls_to_wrap'?"));
}

TEST(LaunchedPrecision, CountsWithoutFsdpAndDeepSpeed) {
  const auto with = [](const char* value, const PlanOptions& options) {
    setenv("ACCELERATE_MIXED_PRECISION", value, 1);
    Plan plan = Plan::from_words("", "", options);
    unsetenv("ACCELERATE_MIXED_PRECISION");
    return plan;
  };
  const Plan plan = with("bf16", {});
  EXPECT_TRUE(plan.precision.bf16.value);
  EXPECT_EQ(plan.precision.bf16.origin.text(), "environment");
  EXPECT_EQ(plan.sharding.strategy.value, "FULL_SHARD");
  EXPECT_TRUE(with("fp16", {}).precision.fp16.value);
  EXPECT_FALSE(with("no", {}).precision.bf16.value);
  const Plan staged = with("fp8", {.flags = {{"--zero-stage", "2"}}});
  EXPECT_TRUE(staged.precision.bf16.value && staged.precision.fp8.value);
  EXPECT_FALSE(with("bf16", {.flags = {{"--precision", "no"}}}).precision.bf16.value);
  EXPECT_THAT(message_of([&] { with("bf61", {}); }), StartsWith("ACCELERATE_MIXED_PRECISION"));
  unsetenv("ACCELERATE_MIXED_PRECISION");
}

TEST(LaunchedPrecision, CountsInALoopOfOnesOwn) {
  char program[] = "program";
  char* arguments[] = {program, nullptr};
  int count = 1;
  setenv("ACCELERATE_MIXED_PRECISION", "bf16", 1);
  const Plan plan = Plan::from_arguments(count, arguments);
  unsetenv("ACCELERATE_MIXED_PRECISION");
  EXPECT_TRUE(plan.precision.bf16.value);
  EXPECT_EQ(plan.wrap.policy.value, "MARKED");
  EXPECT_FALSE(plan.sharding.stage.value.has_value());
}

}  // namespace
}  // namespace fullshard::config
