// SPDX-License-Identifier: Apache-2.0
// Schedules against tables that DeepSpeed and transformers wrote (tests/fixtures/schedules).
#include "fullshard/optim/schedules/lr_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "fullshard/base/error.h"
#include "fullshard/optim/schedules/cycle_schedules.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/optim/schedules/warmup_schedules.h"

namespace fullshard::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const nlohmann::json& recorded_rates() {
  static const nlohmann::json table = nlohmann::json::parse(
      std::ifstream(FULLSHARD_SOURCE_DIR "/tests/fixtures/schedules/schedules.json"));
  return table;
}

// Keys that a case leaves out keep the default of the options.
class Params {
 public:
  explicit Params(const nlohmann::json& params) : params_(params) {}

  template <class Value>
  void read(const char* key, Value& value) const {
    if (params_.contains(key)) value = params_.at(key).get<Value>();
  }
  template <class Value>
  void read(const char* key, std::optional<Value>& value) const {
    if (!params_.contains(key)) return;
    const auto& found = params_.at(key);
    value = found.is_null() ? std::nullopt : std::optional<Value>(found.get<Value>());
  }
  void read(const char* key, WarmupType& type) const {
    if (params_.contains(key)) type = warmup_type_from(params_.at(key).get<std::string>());
  }

 private:
  const nlohmann::json& params_;
};

template <class Options>
Options warmup_options(const Params& params) {
  Options options;
  params.read("warmup_min_lr", options.warmup_min_lr);
  params.read("warmup_max_lr", options.warmup_max_lr);
  params.read("warmup_num_steps", options.warmup_num_steps);
  params.read("warmup_type", options.warmup_type);
  return options;
}

std::unique_ptr<LrSchedule> make_warmup(const std::string& name, const Params& params) {
  if (name == "WarmupLR") return make_warmup_lr(warmup_options<WarmupLrOptions>(params));
  if (name == "WarmupDecayLR") {
    auto options = warmup_options<WarmupDecayLrOptions>(params);
    params.read("total_num_steps", options.total_num_steps);
    return make_warmup_decay_lr(options);
  }
  WarmupCosineLrOptions options;
  params.read("total_num_steps", options.total_num_steps);
  params.read("warmup_min_ratio", options.warmup_min_ratio);
  params.read("warmup_num_steps", options.warmup_num_steps);
  params.read("cos_min_ratio", options.cos_min_ratio);
  params.read("warmup_type", options.warmup_type);
  return make_warmup_cosine_lr(options);
}

std::unique_ptr<LrSchedule> make_cycle(const std::string& name, const Params& params) {
  if (name == "LRRangeTest") {
    LrRangeTestOptions options;
    params.read("lr_range_test_min_lr", options.lr_range_test_min_lr);
    params.read("lr_range_test_step_size", options.lr_range_test_step_size);
    params.read("lr_range_test_step_rate", options.lr_range_test_step_rate);
    params.read("lr_range_test_staircase", options.lr_range_test_staircase);
    return make_lr_range_test(options);
  }
  OneCycleOptions options;
  params.read("cycle_min_lr", options.cycle_min_lr);
  params.read("cycle_max_lr", options.cycle_max_lr);
  params.read("decay_lr_rate", options.decay_lr_rate);
  params.read("cycle_first_step_size", options.cycle_first_step_size);
  params.read("cycle_second_step_size", options.cycle_second_step_size);
  params.read("cycle_first_stair_count", options.cycle_first_stair_count);
  params.read("cycle_second_stair_count", options.cycle_second_stair_count);
  params.read("decay_step_size", options.decay_step_size);
  params.read("cycle_momentum", options.cycle_momentum);
  params.read("cycle_min_mom", options.cycle_min_mom);
  params.read("cycle_max_mom", options.cycle_max_mom);
  params.read("decay_mom_rate", options.decay_mom_rate);
  return make_one_cycle(options);
}

std::unique_ptr<LrSchedule> make_trainers(const std::string& name, const Params& params) {
  if (name == "constant") return make_constant_schedule();
  CosineOptions options;
  params.read("num_warmup_steps", options.num_warmup_steps);
  params.read("num_training_steps", options.num_training_steps);
  params.read("num_cycles", options.num_cycles);
  if (name == "constant_with_warmup") {
    return make_constant_with_warmup({.num_warmup_steps = options.num_warmup_steps});
  }
  if (name == "linear") {
    return make_linear_schedule({.num_warmup_steps = options.num_warmup_steps,
                                 .num_training_steps = options.num_training_steps});
  }
  return make_cosine_schedule(options);
}

std::unique_ptr<LrSchedule> make_schedule(const nlohmann::json& entry) {
  const auto name = entry.at("schedule").get<std::string>();
  const Params params(entry.at("params"));
  if (name.starts_with("Warmup")) return make_warmup(name, params);
  if (name == "OneCycle" || name == "LRRangeTest") return make_cycle(name, params);
  return make_trainers(name, params);
}

// 1e-12 of the value; where a cosine cancels almost all of it, an ulp or so of the peak.
void expect_rate(double actual, double expected, double peak) {
  EXPECT_NEAR(actual, expected, 1e-12 * std::abs(expected) + 1e-15 * peak);
}

TEST(LrSchedule, EqualsTheTablesOfDeepSpeedAndTransformers) {
  const auto steps = recorded_rates().at("steps").get<std::vector<int64_t>>();
  ASSERT_EQ(steps.size(), 49);
  ASSERT_EQ(recorded_rates().at("cases").size(), 31);
  for (const auto& entry : recorded_rates().at("cases")) {
    const auto schedule = make_schedule(entry);
    EXPECT_EQ(schedule->name(), entry.at("schedule").get<std::string>());
    const auto optimizer_lr = entry.at("optimizer_lr").get<double>();
    const auto expected = entry.at("lr").get<std::vector<double>>();
    const double peak = *std::max_element(expected.begin(), expected.end());
    for (size_t i = 0; i < steps.size(); ++i) {
      SCOPED_TRACE(::testing::Message()
                   << schedule->name() << entry.at("params") << " step " << steps[i]);
      const auto rates = schedule->at(steps[i], optimizer_lr);
      expect_rate(rates.lr, expected[i], peak);
      EXPECT_EQ(rates.momentum.has_value(), entry.contains("betas"));
      EXPECT_EQ(rates.beta2.has_value(), entry.contains("betas"));
      if (!rates.momentum || !entry.contains("betas")) continue;
      expect_rate(*rates.momentum, entry.at("betas")[i][0], 1.0);
      EXPECT_EQ(*rates.beta2, entry.at("betas")[i][1].get<double>());
    }
  }
}

TEST(LrSchedule, DefaultDecaysFromTheOptimizersRateOverTheRun) {
  const auto schedule = make_default_schedule(102, 2);
  EXPECT_EQ(schedule->name(), "WarmupDecayLR");
  EXPECT_THAT(schedule->warnings(), IsEmpty());
  // Two steps of warm-up, with the lowest rate twice, and the last of 102 steps.
  EXPECT_EQ(schedule->at(0, 5e-5).lr, 0.0);
  EXPECT_EQ(schedule->at(1, 5e-5).lr, 0.0);
  EXPECT_EQ(schedule->at(2, 5e-5).lr, 5e-5);
  EXPECT_EQ(schedule->at(3, 5e-5).lr, 5e-5);
  EXPECT_DOUBLE_EQ(schedule->at(53, 5e-5).lr, 2.5e-5);
  EXPECT_DOUBLE_EQ(schedule->at(101, 5e-5).lr, 1e-6);
  EXPECT_EQ(schedule->at(103, 5e-5).lr, 0.0);
}

TEST(LrSchedule, DefaultWithoutAWarmUpBeginsWithTheOptimizersRate) {
  const auto schedule = make_default_schedule(100);
  EXPECT_EQ(schedule->at(0, 5e-5).lr, 5e-5);
  EXPECT_DOUBLE_EQ(schedule->at(1, 5e-5).lr, 0.99 * 5e-5);
  EXPECT_DOUBLE_EQ(schedule->at(99, 5e-5).lr, 0.01 * 5e-5);
  EXPECT_EQ(schedule->at(100, 5e-5).lr, 0.0);
}

TEST(LrSchedule, CustomFollowsTheUsersFunction) {
  const auto schedule = make_custom_schedule([](int64_t step) { return 8.0 - step; });
  EXPECT_EQ(schedule->at(0, 5e-5).lr, 8.0);
  EXPECT_EQ(schedule->at(7, 5e-5).lr, 1.0);
  EXPECT_FALSE(schedule->at(7, 5e-5).momentum.has_value());
}

// The text of the error; configuration errors end a program with status 2.
template <class Act>
std::string usage_error_of(const Act& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

TEST(LrSchedule, NamesAMissingTotal) {
  const std::string rest =
      " is missing, expected a positive integer; give the number of optimizer steps of the whole "
      "run";
  EXPECT_EQ(usage_error_of([] { make_warmup_decay_lr({}); }),
            "WarmupDecayLR: total_num_steps" + rest);
  EXPECT_EQ(usage_error_of([] { make_warmup_cosine_lr({}); }),
            "WarmupCosineLR: total_num_steps" + rest);
  EXPECT_EQ(usage_error_of([] { make_linear_schedule({}); }), "linear: num_training_steps" + rest);
  EXPECT_EQ(usage_error_of([] { make_cosine_schedule({}); }), "cosine: num_training_steps" + rest);
  EXPECT_EQ(usage_error_of([] { make_one_cycle({.cycle_max_lr = 1.0}); }),
            "OneCycle: cycle_min_lr is missing, expected a learning rate of 0 or more");
  EXPECT_EQ(usage_error_of([] { make_one_cycle({.cycle_min_lr = 1.0}); }),
            "OneCycle: cycle_max_lr is missing, expected a learning rate of 0 or more");
}

TEST(LrSchedule, NamesTheKeyAndRangeOfABadWarmup) {
  EXPECT_EQ(usage_error_of([] { warmup_type_from("cubic"); }),
            "warmup_type is 'cubic', expected log or linear");
  EXPECT_EQ(usage_error_of([] { make_warmup_lr({.warmup_num_steps = 0}); }),
            "WarmupLR: warmup_num_steps is 0, expected a positive integer");
  EXPECT_EQ(usage_error_of([] { make_warmup_lr({.warmup_min_lr = -0.5}); }),
            "WarmupLR: warmup_min_lr is -0.5, expected 0 or more");
  EXPECT_EQ(
      usage_error_of([] { make_warmup_decay_lr({.total_num_steps = 9, .warmup_max_lr = NAN}); }),
      "WarmupDecayLR: warmup_max_lr is nan, expected 0 or more");
  EXPECT_EQ(usage_error_of([] { make_warmup_decay_lr({.total_num_steps = -9}); }),
            "WarmupDecayLR: total_num_steps is -9, expected a positive integer");
  EXPECT_EQ(usage_error_of([] { make_warmup_lr({.warmup_min_lr = 0.5, .warmup_max_lr = 0.25}); }),
            "WarmupLR: warmup_min_lr is 0.5, expected at most warmup_max_lr, which is 0.25");
  EXPECT_EQ(usage_error_of([] { make_warmup_lr({.warmup_min_lr = 0.5})->at(3, 0.25); }),
            "WarmupLR: warmup_min_lr is 0.5, expected at most the optimizer's lr, which is 0.25");
  EXPECT_EQ(usage_error_of(
                [] { make_warmup_cosine_lr({.total_num_steps = 9, .warmup_min_ratio = 1.5}); }),
            "WarmupCosineLR: warmup_min_ratio is 1.5, expected a number in [0, 1]");
  EXPECT_EQ(
      usage_error_of([] { make_warmup_cosine_lr({.total_num_steps = 9, .cos_min_ratio = -1}); }),
      "WarmupCosineLR: cos_min_ratio is -1, expected a number in [0, 1]");
  EXPECT_EQ(usage_error_of([] { make_default_schedule(10, -1); }),
            "WarmupDecayLR: warmup_num_steps is -1, expected 0 or more");
}

// Ten steps up and ten down, then 0.9 (1 + rate k / 10) in the k-th step after.
TEST(LrSchedule, ADecayedMomentumMustStayInRangeToTheEndOfTheRun) {
  const auto make = [](double rate, int64_t total) {
    (void)make_one_cycle({.cycle_min_lr = 0.25,
                          .cycle_max_lr = 0.5,
                          .cycle_first_step_size = 10,
                          .decay_step_size = 10,
                          .decay_mom_rate = rate,
                          .total_num_steps = total});
  };
  EXPECT_EQ(usage_error_of([&] { make(0.1, 1'000'000); }),
            "OneCycle: decay_mom_rate is 0.1, which makes the momentum 1.008 in step 32 of "
            "1000000, expected [0, 1); give a smaller rate, or 0");
  EXPECT_EQ(usage_error_of([&] { make(-0.5, 41); }),
            "OneCycle: decay_mom_rate is -0.5, which makes the momentum -0.045 in step 41 of 41, "
            "expected [0, 1); give a smaller rate, or 0");
  EXPECT_NO_THROW(make(0.1, 31));
  EXPECT_NO_THROW(make(-0.5, 40));
}

TEST(LrSchedule, NamesTheKeyAndRangeOfABadCycle) {
  const auto error_with = [](const auto& change) {
    OneCycleOptions options{.cycle_min_lr = 0.25, .cycle_max_lr = 0.5};
    change(options);
    return usage_error_of([&] { make_one_cycle(options); });
  };
  EXPECT_EQ(error_with([](auto& options) { options.cycle_min_lr = 1.0; }),
            "OneCycle: cycle_min_lr is 1, expected at most cycle_max_lr, which is 0.5");
  EXPECT_EQ(error_with([](auto& options) { options.cycle_first_step_size = 0; }),
            "OneCycle: cycle_first_step_size is 0, expected a positive integer");
  EXPECT_EQ(error_with([](auto& options) { options.cycle_second_step_size = -1; }),
            "OneCycle: cycle_second_step_size is -1, expected 0 or more");
  EXPECT_EQ(error_with([](auto& options) { options.decay_lr_rate = -0.5; }),
            "OneCycle: decay_lr_rate is -0.5, expected 0 or more");
  EXPECT_EQ(error_with([](auto& options) { options.cycle_max_mom = 1.0; }),
            "OneCycle: cycle_max_mom is 1, expected a number in [0, 1)");
  EXPECT_EQ(error_with([](auto& options) { options.cycle_min_mom = 0.95; }),
            "OneCycle: cycle_min_mom is 0.95, expected at most cycle_max_mom, which is 0.9");
  EXPECT_EQ(usage_error_of([] { make_lr_range_test({.lr_range_test_step_size = 0}); }),
            "LRRangeTest: lr_range_test_step_size is 0, expected a positive integer");
  EXPECT_EQ(
      usage_error_of([] { make_cosine_schedule({.num_training_steps = 5, .num_cycles = -1}); }),
      "cosine: num_cycles is -1, expected 0 or more");
}

TEST(LrSchedule, RefusesStepsAndRatesThatAreNone) {
  const auto schedule = make_custom_schedule([](int64_t) { return NAN; });
  const auto message_of = [](const auto& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message_of([] { make_constant_schedule()->at(-1, 1e-3); }),
            "constant: step is -1, expected 0 or more");
  EXPECT_EQ(message_of([&] { schedule->at(4, 1e-3); }),
            "custom schedule: the rate of step 4 is nan, expected 0 or more; correct the function");
  EXPECT_EQ(message_of([] { make_custom_schedule({}); }),
            "custom schedule: the function is empty, expected one that gives a rate");
}

TEST(LrSchedule, WarnsOfAWarmupLongerThanTheRun) {
  const auto decay = make_warmup_decay_lr({.total_num_steps = 20, .warmup_num_steps = 30});
  EXPECT_THAT(decay->warnings(),
              ElementsAre("WarmupDecayLR: total_num_steps 20 is less than warmup_num_steps 30: the "
                          "run ends before the warm-up does; lower warmup_num_steps"));
  EXPECT_EQ(make_warmup_cosine_lr({.total_num_steps = 20})->warnings().size(), 1);
  EXPECT_THAT(make_linear_schedule({.num_warmup_steps = 3, .num_training_steps = 2})->warnings(),
              ElementsAre("linear: num_training_steps 2 is less than num_warmup_steps 3: the run "
                          "ends before the warm-up does; lower num_warmup_steps"));
  EXPECT_THAT(make_warmup_decay_lr({.total_num_steps = 30, .warmup_num_steps = 30})->warnings(),
              IsEmpty());
  EXPECT_THAT(make_warmup_lr()->warnings(), IsEmpty());
}

TEST(LrSchedule, WarnsOfAMomentumThatGrowsWithoutEnd) {
  OneCycleOptions options{.cycle_min_lr = 0.25, .cycle_max_lr = 0.5, .decay_step_size = 10};
  EXPECT_THAT(make_one_cycle(options)->warnings(), IsEmpty());
  options.decay_mom_rate = 0.5;
  EXPECT_THAT(make_one_cycle(options)->warnings(),
              ElementsAre("OneCycle: decay_mom_rate 0.5 raises the momentum without end after the "
                          "cycle, and past 1; give a negative rate, or 0"));
}

}  // namespace
}  // namespace fullshard::optim
