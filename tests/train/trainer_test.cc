// SPDX-License-Identifier: Apache-2.0
// Whole runs of ready models: the loss does not depend on how a model is sharded.
#include "fullshard/train/run/trainer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <mutex>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "tests/files.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

using ::testing::Each;
using ::testing::Ge;
using ::testing::SizeIs;

constexpr double kCurveTolerance = 1e-5;

struct Case {
  int ranks;
  std::string configuration;
};

std::vector<double> losses_of(const std::string& folder, const Case& how, int64_t accumulation) {
  std::vector<double> losses;
  run_ranks({.ranks = how.ranks}, [&](const World& world) {
    const auto found = losses_on(world, folder, how.configuration, accumulation);
    if (world.rank() == 0) losses = found;
  });
  return losses;
}

std::string zero(int stage) {
  return fmt::format(
      R"({{"train_batch_size": {}, "zero_optimization": {{"stage": {}}}, "gradient_clipping": 1.0}})",
      kGlobalBatch, stage);
}

class Curves : public ::testing::TestWithParam<std::string> {};

TEST_P(Curves, AreTheSameForEveryStrategyAndWorld) {
  const std::vector<double> alone = losses_of(GetParam(), {1, fsdp_configuration("NO_SHARD")}, 1);
  EXPECT_NE(alone.back(), alone.front());
  const std::vector<Case> cases = {
      {2, fsdp_configuration("FULL_SHARD")},
      {2, fsdp_configuration("NO_SHARD")},
      {2, zero(1)},
      {2, zero(2)},
      {2, fsdp_configuration("HYBRID_SHARD")},
      {2, fsdp_configuration("SHARD_GRAD_OP")},
      {3, fsdp_configuration("SHARD_GRAD_OP")},
      {3, fsdp_configuration("FULL_SHARD")},
      {3, zero(3)},
      {3, fsdp_configuration("NO_SHARD")},
      {3, fsdp_configuration("HYBRID_SHARD_ZERO2")},
  };
  for (const Case& how : cases) {
    const std::string what = fmt::format("{} ranks, {}", how.ranks, how.configuration);
    expect_same_losses(alone, losses_of(GetParam(), how, 1), kCurveTolerance, what);
  }
  expect_same_losses(alone, losses_of(GetParam(), {2, fsdp_configuration("FULL_SHARD")}, 3),
                     kCurveTolerance, "accumulated");
}

INSTANTIATE_TEST_SUITE_P(Models, Curves, ::testing::Values("gpt2", "llama", "bert", "t5"),
                         [](const auto& which) { return which.param; });

TEST(Trainer, StopsAtTheEndOfAStepWhenAnyRankIsTold) {
  std::mutex mutex;
  std::map<int, int64_t> done;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const Plan plan = Plan::parse(fsdp_configuration("FULL_SHARD"), "test", {.ranks = 2});
    const ModelSource source = find_model(kModels + "llama");
    const auto model = make_deferred_model(source);
    ShardedModel sharded(model, world, shard_options_of(plan));
    make_new_weights(*model, sharded, 1);
    const UnevenData data(model->vocabulary(), false);
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = 100, .global_batch = 4, .micro_batch = 2});
    int64_t asked = 0;
    const int64_t steps = trainer.run({}, {}, [&] { return ++asked == 3 && world.rank() == 1; });
    EXPECT_TRUE(trainer.was_interrupted());
    const std::lock_guard lock(mutex);
    done[world.rank()] = steps;
  });
  EXPECT_EQ(done, (std::map<int, int64_t>{{0, 3}, {1, 3}}));
}

struct SmallCalls {
  std::map<std::string, int> by_label;  // without those of units
  std::vector<StepRecord> records;      // of rank 0
};

SmallCalls small_calls_of(const std::string& strategy, int64_t steps, int64_t log_every) {
  SmallCalls calls;
  run_ranks({.ranks = 2, .backend = "gloo"}, [&](const World& world) {
    const Plan plan = Plan::parse(fsdp_configuration(strategy), "test", {.ranks = 2});
    const auto model = make_deferred_model(find_model(kModels + "llama"));
    ShardedModel sharded(model, world, shard_options_of(plan));
    make_new_weights(*model, sharded, 1);
    const UnevenData data(model->vocabulary(), false);
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = steps, .global_batch = 4, .micro_batch = 2, .log_every = log_every});
    const auto before = world.recorder().records().size();
    trainer.run([&](const StepRecord& record) { calls.records.push_back(record); }, {}, {});
    const auto records = world.recorder().records();
    for (size_t i = before; i < records.size() && world.rank() == 0; ++i) {
      const std::string& name = records[i].unit;
      if (!name.starts_with("unit ") && name != "the root unit") ++calls.by_label[name];
    }
  });
  return calls;
}

// Over a network every message counts: the weight of the loss (ranks hold different numbers of
// labels here), who is late, and the norm, which takes along all that is recorded of a step.
TEST(Trainer, MakesThreeSmallCallsPerStepLoggedOrNot) {
  const std::map<std::string, int> expected = {
      {"loss weight", 4}, {"late gradients", 4}, {"the gradient norm", 4}, {"peak memory", 1}};
  EXPECT_EQ(small_calls_of("FULL_SHARD", 4, /*log_every=*/1).by_label, expected);
  EXPECT_EQ(small_calls_of("FULL_SHARD", 4, /*log_every=*/2).by_label, expected);
  EXPECT_EQ(small_calls_of("SHARD_GRAD_OP", 4, /*log_every=*/1).by_label, expected);
}

// Each rank has all gradients: the norm needs nobody, its call is this rank's with itself.
TEST(Trainer, MakesACallForTheTotalsWhereTheNormNeedsNone) {
  EXPECT_EQ(small_calls_of("NO_SHARD", 4, /*log_every=*/1).by_label,
            (std::map<std::string, int>{{"loss weight", 4},
                                        {"late gradients", 4},
                                        {"the gradient norm", 4},
                                        {"step totals", 4}}));
}

// The totals are the same numbers whichever message they come with.
TEST(Trainer, RecordsTheSameOfAStepWithAndWithoutACallForIt) {
  const auto riding = small_calls_of("FULL_SHARD", 3, 1).records;
  const auto alone = small_calls_of("NO_SHARD", 3, 1).records;
  ASSERT_EQ(riding.size(), 3u);
  ASSERT_EQ(alone.size(), 3u);
  for (size_t step = 0; step < 3; ++step) {
    EXPECT_EQ(riding[step].loss, alone[step].loss) << "step " << step;
    EXPECT_EQ(riding[step].tokens, alone[step].tokens);
    EXPECT_EQ(riding[step].grad_norm, alone[step].grad_norm);
    EXPECT_GT(riding[step].host_peak_bytes, 0);
  }
}

// What the last update took would be in no later step's record.
TEST(Trainer, RecordsThePeakOfTheLastStepThoughItIsNotDue) {
  const auto records = small_calls_of("FULL_SHARD", 3, /*log_every=*/2).records;
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[1].step, 3);
  EXPECT_GE(records[1].host_peak_bytes, records[0].host_peak_bytes);
  EXPECT_GT(records[0].host_peak_bytes, 0);
}

// An evaluation may take longer than whoever sent the signal waits.
TEST(Trainer, SavesAnInterruptedStepWithoutEvaluating) {
  const TemporaryFolder folder;
  const Plan plan = Plan::parse(fsdp_configuration("NO_SHARD"), "test", {.ranks = 1});
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  ShardedModel sharded(model, World::single(), shard_options_of(plan));
  make_new_weights(*model, sharded, 1);
  const UnevenData data(model->vocabulary(), false);
  const TrainerOptions options{.steps = 4,
                               .global_batch = 4,
                               .micro_batch = 4,
                               .eval_every = 2,
                               .checkpoint_folder = folder.path(),
                               .save_every = 100};
  Trainer trainer(*model, sharded, plan, data, &data, options);
  int asked = 0;
  EXPECT_EQ(trainer.run({}, {}, [&] { return ++asked == 2; }), 2);
  EXPECT_TRUE(trainer.was_interrupted());
  EXPECT_EQ(trainer.last_evaluation(), std::nullopt);
  EXPECT_EQ(trainer.last_saved(), folder.path() + "/step-000002");
  EXPECT_EQ(stored::last_checkpoint(folder.path()).step, 2);
  stored::remove_old_checkpoints(folder.path(), 0, {});

  // A signal during the last step interrupts nothing.
  Trainer last(*model, sharded, plan, data, &data, options);
  last.run({}, {}, [&] { return ++asked == 6; });
  EXPECT_FALSE(last.was_interrupted());
  EXPECT_NE(last.last_evaluation(), std::nullopt);
  stored::remove_old_checkpoints(folder.path(), 0, {});
}

// No moment of a run is left out of its steps, so that tokens per second are those of the clock.
TEST(Trainer, CountsWhatLiesBetweenTwoStepsWithTheSecond) {
  constexpr double kBetween = 0.05;
  const Plan plan = Plan::parse(fsdp_configuration("NO_SHARD"), "test", {.ranks = 1});
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  ShardedModel sharded(model, World::single(), shard_options_of(plan));
  make_new_weights(*model, sharded, 1);
  const UnevenData data(model->vocabulary(), false);
  Trainer trainer(*model, sharded, plan, data, nullptr,
                  {.steps = 4, .global_batch = 4, .micro_batch = 4});
  std::vector<double> seconds;
  const auto spend_time = [&](const StepRecord& record) {
    seconds.push_back(record.step_s);
    const auto begin = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - begin < std::chrono::duration<double>(kBetween)) {
    }
  };
  trainer.run(spend_time, {}, {});
  EXPECT_THAT(seconds, SizeIs(4));
  seconds.erase(seconds.begin());
  EXPECT_THAT(seconds, Each(Ge(kBetween)));
}

// A run of two steps; what each of them records of the norm.
std::vector<bool> steps_with_norm(const std::string& configuration) {
  const Plan plan = Plan::parse(configuration, "test", {.ranks = 1});
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  ShardedModel sharded(model, World::single(), shard_options_of(plan));
  make_new_weights(*model, sharded, 1);
  const UnevenData data(model->vocabulary(), false);
  Trainer trainer(*model, sharded, plan, data, nullptr, {.steps = 2, .global_batch = 4});
  std::vector<bool> has_norm;
  trainer.run([&](const StepRecord& step) { has_norm.push_back(step.grad_norm.has_value()); }, {},
              {});
  return has_norm;
}

TEST(Trainer, LeavesTheNormOutWhereNobodyWantsIt) {
  const auto configuration = [](bool computes) {
    return fmt::format(R"({{"train_batch_size": 4, "gradient_clipping": 0,
      "zero_optimization": {{"stage": 1, "compute_grad_norm": {}}}}})",
                       computes);
  };
  EXPECT_EQ(steps_with_norm(configuration(true)), (std::vector<bool>{true, true}));
  EXPECT_EQ(steps_with_norm(configuration(false)), (std::vector<bool>{false, false}));
}

TEST(Trainer, RefusesSizesThatDoNotMultiplyUp) {
  const Plan plan = Plan::parse(fsdp_configuration("NO_SHARD"), "test", {.ranks = 1});
  const auto model = make_deferred_model(find_model(kModels + "llama"));
  ShardedModel sharded(model, World::single(), shard_options_of(plan));
  const UnevenData data(model->vocabulary(), false);
  try {
    Trainer(*model, sharded, plan, data, nullptr,
            {.global_batch = 12, .micro_batch = 2, .accumulation = 3});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "a step of 12 examples: micro-batches of 2, 3 of them in a step, on 1 ranks are 6");
  }
}

TEST(Trainer, EndsAtTheStepWhoseDataIsBroken) {
  EXPECT_EQ(steps_before_a_broken_example(World::single()), 3);
}

}  // namespace
}  // namespace fullshard::testing
