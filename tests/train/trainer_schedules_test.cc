// SPDX-License-Identifier: Apache-2.0
// The Trainer's schedules, as flags name them, against rates that transformers gave
// (tests/fixtures/schedules).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/config/plan.h"
#include "fullshard/optim/schedules/lr_schedule.h"
#include "fullshard/train/apply_plan.h"
#include "tests/errors.h"

namespace fullshard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Plan plan_of(std::vector<FlagValue> flags) {
  return Plan::from_words("", "", {.flags = std::move(flags)});
}

TEST(TrainerSchedules, HaveTheRatesOfTransformers) {
  const auto table = nlohmann::json::parse(
      std::ifstream(FULLSHARD_SOURCE_DIR "/tests/fixtures/schedules/trainer_schedules.json"));
  const auto steps = table.at("steps").get<std::vector<int64_t>>();
  ASSERT_EQ(table.at("cases").size(), 17);
  for (const auto& entry : table.at("cases")) {
    const auto name = entry.at("schedule").get<std::string>();
    const Plan plan = plan_of({{"--lr", entry.at("optimizer_lr").dump()},
                               {"--schedule", name},
                               {"--schedule-args", entry.at("kwargs").dump()},
                               {"--warmup", entry.at("num_warmup_steps").dump()}});
    const auto schedule = make_schedule(plan, entry.at("num_training_steps").get<int64_t>());
    EXPECT_EQ(schedule->name(), name);
    const auto expected = entry.at("lr").get<std::vector<double>>();
    const double peak = *std::max_element(expected.begin(), expected.end());
    for (size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << name << entry.at("kwargs") << " step " << steps[i]);
      EXPECT_NEAR(schedule->at(steps[i], entry.at("optimizer_lr").get<double>()).lr, expected[i],
                  1e-12 * std::abs(expected[i]) + 1e-15 * peak);
    }
  }
}

TEST(TrainerSchedules, TakeArgumentsAsAList) {
  const Plan plan = plan_of(
      {{"--schedule", "polynomial"}, {"--schedule-args", "power=2,lr_end=0"}, {"--lr", "0.5"}});
  EXPECT_EQ(make_schedule(plan, 10)->at(5, 0.5).lr, 0.5 * 0.25);
}

TEST(TrainerSchedules, RefuseArgumentsThatTheyDoNotTake) {
  const auto refusal = [](const std::string& schedule, const std::string& args) {
    return testing::message_of([&] {
      plan_of({{"--schedule", schedule}, {"--schedule-args", args}});
    });
  };
  EXPECT_EQ(refusal("polynomial", "powr=2"),
            "--schedule-args: 'powr' is not an argument of polynomial; it takes power, lr_end");
  EXPECT_EQ(refusal("linear", "power=2"),
            "--schedule-args: 'power' is not an argument of linear; it takes none");
  EXPECT_EQ(refusal("polynomial", R"({"power": "two"})"),
            "--schedule-args: power is 'two', expected a number");
  EXPECT_EQ(refusal("inverse_sqrt", "timescale=1.5"),
            "--schedule-args: timescale is '1.5', expected a whole number");
  EXPECT_THAT(refusal("polynomial", "{"), StartsWith("--schedule-args: is not valid JSON"));
  EXPECT_THAT(refusal("polynomial", "power"), HasSubstr("'power' has no value"));
}

TEST(TrainerSchedules, NameWhatIsMissingOrCannotBe) {
  const auto refusal = [](std::vector<FlagValue> flags) {
    const Plan plan = plan_of(std::move(flags));
    return testing::message_of([&] { make_schedule(plan, 10)->at(5, *plan.optimizer.lr); });
  };
  EXPECT_THAT(refusal({{"--schedule", "warmup_stable_decay"}}),
              StartsWith("warmup_stable_decay: num_decay_steps is missing"));
  EXPECT_EQ(refusal({{"--schedule", "cosine_with_min_lr"}}),
            "cosine_with_min_lr: has none of min_lr and min_lr_rate; give one of them");
  EXPECT_EQ(
      refusal({{"--schedule", "cosine_with_restarts"}, {"--schedule-args", "num_cycles=1.5"}}),
      "cosine_with_restarts: num_cycles is 1.5, expected a whole number");
  EXPECT_THAT(refusal({{"--lr", "1e-8"}, {"--schedule", "polynomial"}}),
              HasSubstr("is not below the learning rate 1e-08"));
  EXPECT_THAT(refusal({{"--schedule", "warmup_stable_decay"},
                       {"--schedule-args", "num_decay_steps=3,decay_type=steep"}}),
              HasSubstr("decay_type is 'steep', expected linear, cosine or 1-sqrt"));
}

TEST(WarmupShare, IsRoundedUpToStepsOfTheRun) {
  const Plan plan = plan_of({{"--schedule", "linear"}, {"--warmup", "0.06"}, {"--lr", "1"}});
  const auto schedule = make_schedule(plan, 100);  // six steps; 0.06 * 101 are seven
  EXPECT_EQ(schedule->at(5, 1).lr, 5.0 / 6.0);
  EXPECT_EQ(schedule->at(6, 1).lr, 1.0);
  EXPECT_EQ(make_schedule(plan, 101)->at(6, 1).lr, 6.0 / 7.0);
}

TEST(WarmupShare, OverridesTheStepsOfAFileAndSaysSo) {
  const Plan plan =
      Plan::parse(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 50}}})",
                  "ds.json", {.flags = {{"--warmup", "0.5"}}});
  std::vector<std::string> warnings;
  for (const Problem& warning : plan.warnings()) warnings.push_back(warning.text());
  EXPECT_THAT(warnings, ::testing::Contains("ds.json:1: scheduler.params.warmup_num_steps: is 50, "
                                            "--warmup makes it 0.5"));
  EXPECT_EQ(make_schedule(plan, 8)->at(5, *plan.optimizer.lr).lr, *plan.optimizer.lr);
}

}  // namespace
}  // namespace fullshard
