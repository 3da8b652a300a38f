// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/loop_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "fullshard/formats/torch/saved_progress.h"
#include "fullshard/formats/torch/torch_file.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/stored/manifest.h"
#include "fullshard/stored/progress_json.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/formats/checkpoint_fixture.h"

namespace fullshard::testing {
namespace {

using ::testing::HasSubstr;

struct Loop {
  explicit Loop(bool with_scheduler = true)
      : run(World::single(), plain_way(1).options, false),
        scheduler(make_linear_schedule({.num_warmup_steps = 2, .num_training_steps = 10}),
                  run.optimizer),
        stepper(run.sharded, run.optimizer,
                {.max_grad_norm = 1, .loss_scale = LossScaleOptions{.initial_scale_power = 4}},
                with_scheduler ? &scheduler : nullptr) {}

  void train(int steps) {
    for (int i = 0; i < steps; ++i) {
      stepper.backward(run.model(small_batch(static_cast<int>(stepper.num_steps()), 0)));
      stepper.step();
    }
  }

  RankRun run;
  LrScheduler scheduler;
  Stepper stepper;
};

TEST(Progress, OfALoopGoesIntoAnother) {
  Loop loop;
  loop.train(3);
  (void)loop.stepper.scaler().update(true);
  const auto progress = progress_of(loop.stepper, &loop.scheduler);
  EXPECT_EQ(progress.step, 3);
  const auto copy = stored::parse_progress(stored::progress_json(progress), "p");
  Loop other;
  restore_progress(copy, other.stepper, &other.scheduler);
  EXPECT_EQ(other.stepper.num_steps(), 3);
  EXPECT_EQ(other.scheduler.num_steps(), 3);
  EXPECT_EQ(other.run.optimizer.lr(), loop.run.optimizer.lr());
  EXPECT_EQ(other.stepper.scaler().scale(), loop.stepper.scaler().scale());
  EXPECT_EQ(other.stepper.scaler().state().iteration, loop.stepper.scaler().state().iteration);
}

// The rates of the steps after a checkpoint of `saved`, with a schedule that is made before or
// after the load, by an optimizer that was made with `own_lr`.
std::vector<double> rates_after(const std::string& saved, bool loads_first, double own_lr) {
  RankRun run(World::single(), plain_way(1).options, false);
  run.optimizer.set_lr(own_lr);
  const auto load = [&] { return load_checkpoint(saved, run.sharded, run.optimizer).progress; };
  std::optional<Progress> progress;
  if (loads_first) progress = load();
  LrScheduler scheduler(make_linear_schedule({.num_training_steps = 8}), run.optimizer);
  Stepper stepper(run.sharded, run.optimizer, {}, &scheduler);
  if (!loads_first) progress = load();
  restore_progress(*progress, stepper, &scheduler);
  std::vector<double> rates;
  for (int step = 0; step < 3; ++step) {
    stepper.backward(run.model(small_batch(step, 0)));
    rates.push_back(stepper.step().lr);
  }
  return rates;
}

TEST(Progress, AScheduleGoesOnAtTheSameRateWheneverItIsMade) {
  const CheckpointsFolder folder;
  RankRun run(World::single(), plain_way(1).options, false);
  run.optimizer.set_lr(1.0);
  LrScheduler scheduler(make_linear_schedule({.num_training_steps = 8}), run.optimizer);
  Stepper stepper(run.sharded, run.optimizer, {}, &scheduler);
  for (int step = 0; step < 4; ++step) {
    stepper.backward(run.model(small_batch(step, 0)));
    stepper.step();
  }
  save_checkpoint(folder / "half", run.sharded, run.optimizer, progress_of(stepper, &scheduler));
  const std::vector<double> expected = {0.5, 0.375, 0.25};
  EXPECT_EQ(rates_after(folder / "half", true, 1.0), expected);
  EXPECT_EQ(rates_after(folder / "half", false, 1.0), expected);
  // Torch's order and a new rate: the saved one counts, as everything that was loaded.
  EXPECT_EQ(rates_after(folder / "half", true, 4.0), expected);

  // Of a version that did not keep the base, the run's own counts.
  auto manifest = stored::read_manifest(folder / "half");
  EXPECT_EQ(manifest.optimizer->base_lrs, std::vector<double>{1.0});
  manifest.optimizer->base_lrs.clear();
  std::ofstream(folder / "half/manifest.json") << stored::manifest_text(manifest);
  EXPECT_EQ(rates_after(folder / "half", true, 1.0), expected);
  EXPECT_EQ(rates_after(folder / "half", false, 1.0), expected);
}

TEST(Progress, CountsSkippedStepsAndAllOfTheLossScale) {
  Loop loop;
  loop.stepper.restore(7, 2);
  for (const bool overflowed : {false, false, true, false}) {
    (void)loop.stepper.scaler().update(overflowed);
  }
  const auto saved = loop.stepper.scaler().state();
  EXPECT_EQ(saved.last_overflow, 2);
  Loop other;
  const auto progress = stored::progress_json(progress_of(loop.stepper, &loop.scheduler));
  restore_progress(stored::parse_progress(progress, "p"), other.stepper, &other.scheduler);
  EXPECT_EQ(other.stepper.num_steps(), 7);
  EXPECT_EQ(other.stepper.num_skipped(), 2);
  const auto restored = other.stepper.scaler().state();
  EXPECT_EQ(restored.scale, saved.scale);
  EXPECT_EQ(restored.iteration, saved.iteration);
  EXPECT_EQ(restored.last_overflow, saved.last_overflow);
  EXPECT_EQ(restored.hysteresis, saved.hysteresis);
}

// torch doubles after 5 good steps, of which 2 are done, and knows no hysteresis.
TEST(Progress, OfTorchsGradScalerDoublesWhenThatWouldHave) {
  const formats::TorchFile file(checkpoint_fixture("resumable/accelerate_state/scaler.pt"));
  const auto saved = formats::grad_scaler_loss_scale(file.root(), file.path());
  ASSERT_TRUE(saved.has_value());
  Loop loop;
  Progress progress;
  progress.scheduler_steps = 2;
  progress.loss_scale = {saved->scale, saved->iteration, saved->last_overflow, saved->hysteresis};
  restore_progress(progress, loop.stepper, &loop.scheduler);
  EXPECT_EQ(loop.stepper.scaler().state().hysteresis, LossScaleOptions{}.hysteresis);
  LossScaler scaler({.loss_scale_window = 5});
  scaler.restore(loop.stepper.scaler().state());
  for (const double expected : {1024, 1024, 2048, 2048, 2048, 2048, 2048, 4096}) {
    EXPECT_TRUE(scaler.update(false));
    EXPECT_EQ(scaler.scale(), expected);
  }
}

TEST(Progress, AScheduleIsThereOnBothSidesOrOnNone) {
  Loop loop;
  EXPECT_THAT(
      error_of_call([&] { restore_progress({.step = 1}, loop.stepper, &loop.scheduler); }).what(),
      HasSubstr("was saved without a learning rate schedule, and this run has one"));
  EXPECT_THAT(error_of_call([&] {
                restore_progress({.step = 1, .scheduler_steps = 1}, loop.stepper, nullptr);
              }).what(),
              HasSubstr("was saved with a learning rate schedule, and this run has none"));
}

TEST(Progress, NumbersThatJsonCannotSayComeBack) {
  Progress progress;
  progress.best = BestEvaluation{1, std::numeric_limits<double>::quiet_NaN()};
  const auto text = stored::progress_json(progress).dump();
  EXPECT_TRUE(std::isnan(stored::parse_progress(nlohmann::json::parse(text), "p").best->loss));
}

TEST(Progress, CountsThatNoRunReachesAreRefused) {
  Progress progress{.step = 3, .data = DataPosition{.step = 3}};
  progress.data->place = DataPlace{.epoch = 1, .num_examples = 8, .order = "shuffled"};
  for (const char* field : {"/step", "/data/step", "/data/place/epoch", "/data/place/example"}) {
    auto saved = stored::progress_json(progress);
    saved[nlohmann::json::json_pointer(field)] = int64_t{1} << 53;
    EXPECT_NO_THROW(stored::parse_progress(saved, "p")) << field;
    saved[nlohmann::json::json_pointer(field)] = (int64_t{1} << 53) + 1;
    EXPECT_THAT(error_of_call([&] { stored::parse_progress(saved, "p"); }).what(),
                HasSubstr("is 9007199254740993, expected a whole number from 0 to 2^53"))
        << field;
  }
}

TEST(Progress, AMixtureOfDataComesBackWhereItIsSaid) {
  Progress progress{.step = 3, .data = DataPosition{.step = 3}};
  for (const std::optional<std::string>& mixture :
       {std::optional<std::string>(), std::optional<std::string>(""),
        std::optional<std::string>("0.7 of 20, 0.3 of 10")}) {
    progress.data->place = DataPlace{.num_examples = 8, .order = "shuffled", .mixture = mixture};
    const auto saved = stored::progress_json(progress);
    EXPECT_EQ(saved["data"]["place"].contains("mixture"), mixture.has_value());
    EXPECT_EQ(stored::parse_progress(saved, "p").data->place, progress.data->place);
  }
}

TEST(Progress, TheCallersOwnMustBeJson) {
  EXPECT_THAT(error_of_call([] { stored::progress_json({.extra = "{nonsense"}); }).what(),
              HasSubstr("progress: extra: invalid JSON"));
  EXPECT_THAT(error_of_call([] { stored::progress_json({.extra = "[1]"}); }).what(),
              HasSubstr("progress: extra: is a JSON array, expected an object"));
}

}  // namespace
}  // namespace fullshard::testing
