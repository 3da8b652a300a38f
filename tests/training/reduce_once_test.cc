// SPDX-License-Identifier: Apache-2.0
// A step whose micro-batches are added on each rank first: one reduction instead of one for each.
#include <gtest/gtest.h>

#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

constexpr int kMicroBatches = 4;
constexpr int kUnits = 4;  // the root and three blocks

struct SteppedRun {
  Outcome outcome;
  std::vector<int64_t> reductions;  // of each step
  int64_t moved = 0;                // bytes by reductions, per rank
};

SteppedRun accumulate_by_stepper(const ShardOptions& options, bool reduces_once) {
  SteppedRun run;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, {.lr = 1e-2});
    Stepper stepper(
        sharded, optimizer,
        {.max_grad_norm = 0.5, .accumulation_steps = kMicroBatches, .reduces_once = reduces_once});
    SteppedRun own;
    world.recorder().reset_totals();
    for (int step = 0; step < 3; ++step) {
      const int64_t before = sharded.counters().reductions;
      for (int micro = 0; micro < kMicroBatches; ++micro) {
        stepper.backward(model(make_batch(training, step, micro, world.rank())));
      }
      own.reductions.push_back(sharded.counters().reductions - before);
      own.outcome.norms.push_back(stepper.step().grad_norm);
    }
    own.moved = world.recorder().totals(Operation::reduce_scatter).moved;
    auto full = sharded.gather_full();
    for (const auto& item : model->named_parameters()) {
      own.outcome.parameters[item.key()] = item.value().detach().clone();
    }
    if (world.rank() == 0) run = std::move(own);
  });
  return run;
}

std::vector<std::pair<std::string, ShardOptions>> stepped_shardings() {
  std::vector<std::pair<std::string, ShardOptions>> list;
  for (int stage = 0; stage <= 3; ++stage) {
    ShardOptions options;
    options.sharding.zero_stage = stage;
    list.emplace_back(fmt::format("stage {}", stage), options);
  }
  for (const auto strategy : {Strategy::no_shard, Strategy::full_shard}) {
    ShardOptions options;
    options.sharding.strategy = strategy;
    options.share_host_copy = false;
    list.emplace_back(std::string(name_of(strategy)), options);
  }
  return list;
}

// Whichever way a run takes, its bits do not depend on the strategy.
TEST(ReduceOnce, ReducesEachUnitOnceAStepAndGivesEveryStrategyTheSameBits) {
  for (const bool once : {false, true}) {
    std::optional<SteppedRun> first;
    for (const auto& [what, options] : stepped_shardings()) {
      SCOPED_TRACE(fmt::format("{}, reduced {}", what, once ? "once" : "each time"));
      auto run = accumulate_by_stepper(options, once);
      const int64_t expected = once ? kUnits : kUnits * kMicroBatches;
      EXPECT_EQ(run.reductions, std::vector<int64_t>(3, expected));
      if (!first) first = run;
      expect_same_bits(run.outcome, first->outcome, what);
    }
  }
}

TEST(ReduceOnce, ChangesRoundingOnlyAndMovesAQuarterOfTheBytes) {
  const auto [what, options] = stepped_shardings().front();
  const auto each = accumulate_by_stepper(options, false),
             once = accumulate_by_stepper(options, true);
  expect_close(once.outcome, each.outcome, 1e-4);
  EXPECT_EQ(once.moved * kMicroBatches, each.moved);
}

}  // namespace
}  // namespace fullshard::testing
