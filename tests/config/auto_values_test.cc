#include "fullshard/config/auto_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/config/plan.h"

namespace fullshard {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace fullshard
