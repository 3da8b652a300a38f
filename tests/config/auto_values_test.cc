// SPDX-License-Identifier: Apache-2.0
#include "fullshard/config/auto_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "fullshard/base/error.h"
#include "fullshard/config/plan.h"

namespace fullshard::config {
namespace {

using ::testing::ElementsAre;

constexpr std::string_view kAll = R"({
  "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto",
  "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",
  "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto",
                                            "weight_decay": "auto"}},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto",
                "warmup_max_lr": "auto", "warmup_num_steps": "auto", "total_num_steps": "auto"}},
  "bf16": {"enabled": "auto"},
  "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto",
                        "stage3_prefetch_bucket_size": "auto",
                        "stage3_param_persistence_threshold": "auto", "overlap_comm": "auto"}
})";

// The rules of transformers 5.22's HfTrainerDeepSpeedConfig with TrainingArguments' defaults.
TEST(AutoValues, AreTheTrainersDefaults) {
  const Plan plan = Plan::parse(kAll, "d.json", {.ranks = 4});
  EXPECT_EQ(plan.batch.micro.value, 8);
  EXPECT_EQ(plan.batch.accumulation.value, 1);
  EXPECT_EQ(plan.batch.global.value, 32);
  EXPECT_EQ(plan.clipping.value, 1.0);
  EXPECT_EQ(plan.optimizer.lr.value, 5e-5);
  EXPECT_THAT(plan.optimizer.betas.value, ElementsAre(0.9, 0.999));
  EXPECT_EQ(plan.optimizer.eps.value, 1e-8);
  EXPECT_EQ(plan.optimizer.weight_decay.value, 0);
  EXPECT_EQ(plan.scheduler.warmup_min_lr.value, 0);
  EXPECT_EQ(plan.scheduler.warmup_max_lr.value, 5e-5);
  EXPECT_EQ(plan.scheduler.warmup_num_steps.value, 1);
  EXPECT_FALSE(plan.precision.bf16.value);
  EXPECT_EQ(plan.optimizer.lr.origin.text(), "derived");
}

TEST(AutoValues, SayWhichOnesWaitForTheModelAndTheRun) {
  const Plan plan = Plan::parse(kAll, "d.json", {.ranks = 4});
  EXPECT_THAT(plan.unresolved(), ElementsAre("scheduler.params.total_num_steps",
                                             "zero_optimization.reduce_bucket_size",
                                             "zero_optimization.stage3_param_persistence_threshold",
                                             "zero_optimization.stage3_prefetch_bucket_size"));
}

TEST(AutoValues, FollowTheInputs) {
  AutoInputs inputs;
  inputs.per_device_train_batch_size = 3;
  inputs.gradient_accumulation_steps = 5;
  inputs.learning_rate = 1e-3;
  inputs.warmup_steps = 20;
  inputs.bf16 = true;
  inputs.hidden_size = 1000;
  inputs.num_training_steps = 70;
  const Plan plan = Plan::parse(kAll, "d.json", {.ranks = 2, .inputs = inputs});
  EXPECT_EQ(plan.batch.global.value, 30);
  EXPECT_EQ(plan.scheduler.warmup_max_lr.value, 1e-3);
  EXPECT_EQ(plan.scheduler.warmup_num_steps.value, 20);
  EXPECT_EQ(plan.scheduler.total_num_steps.value, 70);
  EXPECT_TRUE(plan.precision.bf16.value);
  EXPECT_EQ(plan.sharding.reduce_bucket_size.value, 1'000'000);
  EXPECT_EQ(plan.sharding.prefetch_bucket_size.value, 900'000);
  EXPECT_EQ(plan.sharding.param_persistence_threshold.value, 10'000);
  EXPECT_TRUE(plan.unresolved().empty());
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "none";
}

TEST(AutoValues, OfTheScheduleFollowTheEffectiveLearningRate) {
  const Plan flag = Plan::parse(kAll, "d.json", {.flags = {{"--lr", "0.25"}}, .ranks = 4});
  EXPECT_EQ(flag.optimizer.lr.value, 0.25);
  EXPECT_EQ(flag.scheduler.warmup_max_lr.value, 0.25);
  EXPECT_EQ(flag.scheduler.warmup_max_lr.origin.note, "optimizer.params.lr");
  const Plan set =
      Plan::parse(kAll, "d.json", {.overrides = {"optimizer.params.lr=0.5"}, .ranks = 4});
  EXPECT_EQ(set.scheduler.warmup_max_lr.value, 0.5);
  const Plan file = Plan::parse(
      R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.125}},
          "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}})");
  EXPECT_EQ(file.scheduler.warmup_max_lr.value, 0.125);
}

// The flag decides the rate, whatever rate the schedule states.
TEST(AutoValues, TheFlagOfTheLearningRateReachesASchedulesOwnRate) {
  const auto plan_of = [](const std::string& schedule) {
    return Plan::parse(R"({"train_batch_size": 8, "scheduler": )" + schedule + "}", "d.json",
                       {.flags = {{"--lr", "0.25"}}});
  };
  const Plan said =
      plan_of(R"({"type": "WarmupLR", "params": {"warmup_max_lr": 3e-5, "warmup_num_steps": 9}})");
  EXPECT_EQ(said.scheduler.warmup_max_lr.value, 0.25);
  ASSERT_EQ(said.warnings().size(), 1u);
  EXPECT_EQ(said.warnings()[0].text(),
            "d.json:1: scheduler.params.warmup_max_lr: is 3e-05, --lr makes it 0.25");
  const Plan fallback = plan_of(
      R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9, "warmup_num_steps": 2}})");
  EXPECT_EQ(fallback.scheduler.warmup_max_lr.value, 0.25);
  EXPECT_TRUE(fallback.warnings().empty());
  const Plan cycle =
      plan_of(R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01}})");
  ASSERT_EQ(cycle.warnings().size(), 1u);
  EXPECT_EQ(cycle.warnings()[0].text(), "--lr: without effect: OneCycle states its own rates");
}

TEST(AutoValues, OfTheMicroBatchStandBesideAGivenTotal) {
  const std::string text = R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": "auto"})";
  const Plan plan = Plan::parse(text, "d.json", {.ranks = 2});
  EXPECT_EQ(plan.batch.micro.value, 8);
  EXPECT_EQ(plan.batch.accumulation.value, 2);
  // The same when only a program knows how many ranks there are.
  const BatchSizes sizes = Plan::parse(text, "d.json").batch_sizes(2);
  EXPECT_EQ(sizes.global_batch, 32);
  EXPECT_EQ(sizes.micro_batch, 8);
  EXPECT_EQ(sizes.accumulation, 2);
  const Plan flag = Plan::parse(text, "d.json", {.flags = {{"--micro-batch", "4"}}, .ranks = 2});
  EXPECT_EQ(flag.batch.accumulation.value, 4);
  // Without "auto" the total is divided among the ranks.
  EXPECT_EQ(Plan::parse(R"({"train_batch_size": 32})").batch_sizes(2).micro_batch, 16);
}

TEST(AutoValues, BatchSizesFitTheRanksThatThereAre) {
  const Plan plan = Plan::parse(
      "distributed_type: DEEPSPEED\nnum_processes: 2\n"
      "deepspeed_config:\n  gradient_accumulation_steps: 4\n");
  EXPECT_EQ(plan.batch.global.value, 2 * 4 * 8);
  EXPECT_EQ(plan.batch_sizes(3).global_batch, 3 * 4 * 8);
  const Plan given = Plan::parse(R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})",
                                 "d.json", {.ranks = 2});
  EXPECT_EQ(given.batch.accumulation.value, 4);
  EXPECT_EQ(given.batch_sizes(4).accumulation, 2);
}

TEST(AutoValues, FlagsCountBeforeAcceleratesBatchIsDerived) {
  const std::string text =
      "distributed_type: DEEPSPEED\nnum_processes: 2\n"
      "deepspeed_config:\n  gradient_accumulation_steps: auto\n  gradient_clipping: auto\n";
  const Plan plan = Plan::parse(
      text, "a.yaml", {.flags = {{"--micro-batch", "3"}, {"--accumulate", "5"}, {"--lr", "0.5"}}});
  EXPECT_EQ(plan.batch.micro.value, 3);
  EXPECT_EQ(plan.batch.micro.origin.text(), "flag");
  EXPECT_EQ(plan.batch.accumulation.value, 5);
  EXPECT_EQ(plan.batch.global.value, 2 * 3 * 5);
  EXPECT_EQ(plan.optimizer.lr.value, 0.5);
  // Accelerate's own keys show what "auto" became.
  EXPECT_EQ(plan.settings()->find("deepspeed_config.gradient_clipping")->value.number, 1.0);
  EXPECT_TRUE(Plan::parse(text, "a.yaml").unresolved().empty());
}

TEST(AutoValues, ThatNothingResolvesAreOneError) {
  const Plan plan = Plan::parse(kAll, "d.json");
  EXPECT_EQ(error_of([&] { plan.check_resolved(); }),
            "d.json:9: zero_optimization.reduce_bucket_size: is \"auto\", which needs the "
            "model's hidden_size; write a number, or give PlanOptions::inputs.hidden_size\n"
            "error: d.json:10: zero_optimization.stage3_prefetch_bucket_size: is \"auto\", which "
            "needs the model's hidden_size; write a number, or give "
            "PlanOptions::inputs.hidden_size\n"
            "error: d.json:11: zero_optimization.stage3_param_persistence_threshold: is \"auto\", "
            "which needs the model's hidden_size; write a number, or give "
            "PlanOptions::inputs.hidden_size");
  const Plan known = Plan::parse(kAll, "d.json", {.inputs = {.hidden_size = 16}});
  EXPECT_EQ(error_of([&] { known.check_resolved(); }), "none");
  EXPECT_EQ(known.batch_sizes(3).global_batch, 24);
}

}  // namespace
}  // namespace fullshard::config
