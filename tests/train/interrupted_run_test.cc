// SPDX-License-Identifier: Apache-2.0
// A run that is interrupted is saved, and goes on as if nothing had happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/stored/checkpoint_folder.h"
#include "fullshard/train/apply_plan.h"
#include "fullshard/train/model_source.h"
#include "fullshard/train/model_weights.h"
#include "fullshard/train/run/trainer.h"
#include "tests/files.h"
#include "tests/train/curves.h"
#include "tests/train/fixture_models.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kWholeRun = 7, kInterruptedAt = 3;
constexpr double kNotEvaluated = -1;

// What rank 0 saw of a run.
struct Seen {
  std::vector<double> losses;
  std::vector<double> evaluations;
  std::vector<int64_t> best;  // steps whose evaluation was better than all before
};

// So fast, and on so few of the vocabulary's words, that the evaluation on all of them gets worse.
Plan fast_plan(int ranks) {
  return Plan::parse(R"({"zero_optimization": {"stage": 2},
                         "optimizer": {"type": "AdamW", "params": {"lr": 0.02}}})",
                     "test", {.ranks = ranks});
}

// Adds to `seen`. `interrupted_at` and `resumed`: 0 and empty where nothing is.
void run_some(const World& world, const std::string& folder, int64_t interrupted_at,
              const std::string& resumed, Seen& seen) {
  const Plan plan = fast_plan(world.size());
  const ModelSource source = find_model(kModels + "llama");
  const auto model = make_deferred_model(source);
  ShardedModel sharded(model, world, shard_options_of(plan));
  load_model_weights(source.folder, *model, sharded);
  const UnevenData data(8, false), evaluation(model->vocabulary(), false);
  TrainerOptions options;
  options.steps = kWholeRun;
  options.global_batch = 4;
  options.eval_every = 1;
  options.checkpoint_folder = folder;
  options.save_every = 100;  // so that only the interruption and the end save
  Trainer trainer(*model, sharded, plan, data, &evaluation, options);
  if (!resumed.empty()) {
    EXPECT_EQ(trainer.resume(resumed), kInterruptedAt);
  }
  int64_t steps = 0;
  trainer.run(
      [&](const StepRecord& record) {
        seen.losses.push_back(record.loss);
        seen.evaluations.push_back(record.eval_loss.value_or(kNotEvaluated));
      },
      [&](int64_t step, double) {
        if (world.rank() == 0) seen.best.push_back(step);
      },
      [&] { return ++steps == interrupted_at; });
}

TEST(InterruptedRun, IsSavedAndGoesOnAsIfNothingHadHappened) {
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    Seen whole, parts;
    run_ranks({.ranks = ranks}, [&](const World& world) {
      run_some(world, folder.file("whole"), 0, "", whole);
      run_some(world, folder.path(), kInterruptedAt, "", parts);
      const auto saved = folder.file(stored::checkpoint_name(kInterruptedAt));
      ASSERT_TRUE(file_exists(saved + "/manifest.json"));
      run_some(world, folder.path(), 0, saved, parts);
    });
    EXPECT_EQ(parts.losses, whole.losses);
    // Who interrupts a run does not want to wait for an evaluation.
    auto evaluations = whole.evaluations;
    evaluations[kInterruptedAt - 1] = kNotEvaluated;
    EXPECT_EQ(parts.evaluations, evaluations);
    EXPECT_EQ(parts.best, whole.best);
    // Or else nothing would be told by a best one that is forgotten.
    ASSERT_FALSE(whole.best.empty());
    EXPECT_LT(whole.best.back(), kInterruptedAt);
    EXPECT_GT(whole.evaluations.back(), whole.evaluations[0]);
    for (const auto step : {kInterruptedAt, kWholeRun}) {
      stored::remove_checkpoint(folder.file(stored::checkpoint_name(step)));
    }
    stored::remove_checkpoint(folder.file("whole/" + stored::checkpoint_name(kWholeRun)));
    ::unlink(folder.file("whole/latest").c_str());
    ::rmdir(folder.file("whole").c_str());
  }
}

}  // namespace
}  // namespace fullshard::testing
