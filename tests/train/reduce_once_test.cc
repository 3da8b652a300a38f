// SPDX-License-Identifier: Apache-2.0
// Runs that add the micro-batches of a step on each rank first.
#include <gtest/gtest.h>

#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/trainer.h"
#include "tests/errors.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

struct AccumulatedRun {
  std::vector<double> losses;
  int64_t reductions = 0;  // of a unit, in one step
};

AccumulatedRun accumulated_run(const std::string& strategy, bool reduces_once) {
  AccumulatedRun run;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const Plan plan = Plan::parse(fsdp_configuration(strategy), "test", {.ranks = 2});
    const auto model = make_deferred_model(find_model(kModels + "llama"));
    ShardedModel sharded(model, world, shard_options_of(plan));
    make_new_weights(*model, sharded, 1);
    const UnevenData data(model->vocabulary(), false);
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = 2,
                     .global_batch = 8,
                     .micro_batch = 1,
                     .accumulation = 4,
                     .reduces_once = reduces_once});
    AccumulatedRun own;
    trainer.run([&](const StepRecord& record) { own.losses.push_back(record.loss); }, {}, {});
    constexpr int64_t kUnitSteps = 3 * 2;  // the root and two layers, two steps
    own.reductions = sharded.counters().reductions / kUnitSteps;
    if (world.rank() == 0) run = std::move(own);
  });
  return run;
}

TEST(ReduceOnceRun, ReducesOnceAStepWithTheSameLossesUnderEveryStrategy) {
  const auto expected = accumulated_run("NO_SHARD", true);
  EXPECT_EQ(expected.reductions, 1);
  const auto full = accumulated_run("FULL_SHARD", true);
  EXPECT_EQ(full.reductions, 1);
  EXPECT_EQ(full.losses, expected.losses);
}

TEST(ReduceOnceRun, IsNotTheDefault) {
  const auto expected = accumulated_run("NO_SHARD", false);
  EXPECT_EQ(expected.reductions, 4);
  const auto full = accumulated_run("FULL_SHARD", false);
  EXPECT_EQ(full.reductions, 4);
  EXPECT_EQ(full.losses, expected.losses);
}

TEST(ReduceOnceRun, NeedsSeveralMicroBatches) {
  const Plan plan = Plan::parse(fsdp_configuration("NO_SHARD"), "test", {.ranks = 1});
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  ShardedModel sharded(model, World::single(), shard_options_of(plan));
  make_new_weights(*model, sharded, 1);
  const UnevenData data(model->vocabulary(), false);
  const TrainerOptions options{
      .steps = 1, .global_batch = 2, .micro_batch = 2, .reduces_once = true};
  EXPECT_EQ(message_of([&] { Trainer(*model, sharded, plan, data, nullptr, options); }),
            "--reduce-once: a step has one micro-batch, which is reduced once anyway; give "
            "--accumulate, or drop the flag");
}

}  // namespace
}  // namespace fullshard::testing
