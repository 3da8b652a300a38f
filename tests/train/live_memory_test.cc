// SPDX-License-Identifier: Apache-2.0
// A long run keeps its steps on the disk: rank 0 holds no more after a thousand of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "fullshard/comm/world/world.h"
#include "fullshard/report/records/run_totals.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/run_account.h"
#include "fullshard/train/run/trainer.h"
#include "tests/files.h"
#include "tests/live_heap.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kWarmSteps = 100;
constexpr int64_t kMeasuredSteps = kWarmSteps + 1000;
// Samples of a bounded number of steps fill up in the first thousands: some 40 bytes a step. A
// record kept of every step takes hundreds.
constexpr int64_t kMostGrowth = 64 * 1024;

TEST(LiveMemory, OfATrainersRunDoesNotGrowWithSteps) {
  const TemporaryFolder output;
  run_ranks({.ranks = 2}, [&](const World& world) {
    const Plan plan = Plan::parse(fsdp_configuration("FULL_SHARD"), "test", {.ranks = 2});
    const auto model = make_deferred_model(find_model(kModels + "gpt2"));
    ShardedModel sharded(model, world, shard_options_of(plan));
    make_new_weights(*model, sharded, 1);
    const UnevenData data(model->vocabulary(), false);
    RunOptions run;
    run.output = output.path();
    run.model = "gpt2";
    run.quiet = true;
    train::RunAccount account(run, {"test"}, {}, plan, *model, sharded, kMeasuredSteps);
    Trainer trainer(*model, sharded, plan, data, nullptr,
                    {.steps = kMeasuredSteps, .global_batch = 2});
    std::optional<int64_t> warm;
    int64_t grown = 0;
    trainer.run(
        [&](const StepRecord& record) {
          account.add(record);
          if (record.step == kWarmSteps) warm = live_heap_bytes();
          if (record.step == kMeasuredSteps) grown = live_heap_bytes() - *warm;
        },
        {}, {});
    if (world.rank() == 0) {
      EXPECT_LT(grown, kMostGrowth);
    }
  });
}

// What a summary is made of, past the point from which it is a sample.
TEST(LiveMemory, OfTotalsDoesNotGrowWithSteps) {
  report::RunTotals totals;
  StepRecord record;
  const auto add = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      ++record.step;
      record.mfu = record.step_s = record.tokens_per_s = static_cast<double>(record.step % 100);
      totals.add(record);
    }
  };
  add(20'000);
  const int64_t before = live_heap_bytes();
  add(1'000'000);
  EXPECT_LT(live_heap_bytes() - before, kMostGrowth);
  EXPECT_NEAR(totals.median_step_s(), 49.5, 1);
}

}  // namespace
}  // namespace fullshard::testing
