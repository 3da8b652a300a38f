// SPDX-License-Identifier: Apache-2.0
// Every range of every optimizer's settings, at its border and beyond; what is refused is named.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/optim/adagrad.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/lamb.h"
#include "fullshard/optim/lion.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/sgd.h"
#include "tests/errors.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Kind, class Options>
std::string answer_to(const Options& options) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  return message_of([&] { Kind optimizer(sharded, options); });
}

// `key` of Options, 0 or more and finite.
template <class Kind, class Options>
void expect_at_least_zero(const std::string& optimizer, const std::string& key,
                          double Options::*setting) {
  Options options;
  for (const double bad : {-1e-9, -1.0, kNan, kInfinity, -kInfinity}) {
    options.*setting = bad;
    EXPECT_EQ(answer_to<Kind>(options),
              fmt::format("{}: {} is {}, expected at least 0", optimizer, key, bad));
  }
  options.*setting = 0;
  EXPECT_EQ(answer_to<Kind>(options), "no error") << optimizer << ", " << key;
}

// `key` of Options, 0 or more and below 1: with 1 a mean would never change.
template <class Kind, class Options>
void expect_below_one(const std::string& optimizer, const std::string& key,
                      double Options::*setting) {
  Options options;
  for (const double bad : {1.0, 1.5, -0.5, kNan, kInfinity}) {
    options.*setting = bad;
    EXPECT_EQ(answer_to<Kind>(options),
              fmt::format("{}: {} is {}, expected 0 <= {} < 1", optimizer, key, bad, key));
  }
  for (const double good : {0.0, std::nextafter(1.0, 0.0)}) {
    options.*setting = good;
    EXPECT_EQ(answer_to<Kind>(options), "no error") << optimizer << ", " << key;
  }
}

template <class Kind, class Options>
void expect_common_ranges(const std::string& optimizer) {
  expect_at_least_zero<Kind>(optimizer, "lr", &Options::lr);
  expect_at_least_zero<Kind>(optimizer, "weight_decay", &Options::weight_decay);
  Options options;
  options.state_dtype = at::kHalf;
  EXPECT_EQ(answer_to<Kind>(options),
            optimizer + ": state_dtype is Half, expected Float or BFloat16");
}

template <class Kind, class Options>
void expect_betas_below_one(const std::string& optimizer) {
  expect_below_one<Kind>(optimizer, "beta1", &Options::beta1);
  expect_below_one<Kind>(optimizer, "beta2", &Options::beta2);
}

TEST(Settings, OfAdamWHaveRanges) {
  expect_common_ranges<AdamW, AdamWOptions>("AdamW");
  expect_betas_below_one<AdamW, AdamWOptions>("AdamW");
  expect_at_least_zero<AdamW>("AdamW", "epsilon", &AdamWOptions::epsilon);
  EXPECT_EQ(answer_to<AdamW>(AdamWOptions{.epsilon = -1, .adam_w_mode = false}),
            "Adam: epsilon is -1, expected at least 0");
}

TEST(Settings, OfLambHaveRanges) {
  expect_common_ranges<Lamb, LambOptions>("LAMB");
  expect_betas_below_one<Lamb, LambOptions>("LAMB");
  expect_at_least_zero<Lamb>("LAMB", "epsilon", &LambOptions::epsilon);
  expect_at_least_zero<Lamb>("LAMB", "min_coeff", &LambOptions::min_coeff);
  EXPECT_EQ(answer_to<Lamb>(LambOptions{.max_coeff = 0.1, .min_coeff = 0.2}),
            "LAMB: max_coeff is 0.1, expected at least min_coeff, 0.2");
  EXPECT_EQ(answer_to<Lamb>(LambOptions{.max_coeff = kNan, .min_coeff = 0.5}),
            "LAMB: max_coeff is nan, expected at least min_coeff, 0.5");
  EXPECT_EQ(answer_to<Lamb>(LambOptions{.max_coeff = 0.5, .min_coeff = 0.5}), "no error");
}

TEST(Settings, OfLionHaveRanges) {
  expect_common_ranges<Lion, LionOptions>("Lion");
  expect_betas_below_one<Lion, LionOptions>("Lion");
}

TEST(Settings, OfAdagradHaveRanges) {
  expect_common_ranges<Adagrad, AdagradOptions>("Adagrad");
  expect_at_least_zero<Adagrad>("Adagrad", "lr_decay", &AdagradOptions::lr_decay);
  expect_at_least_zero<Adagrad>("Adagrad", "initial_accumulator_value",
                                &AdagradOptions::initial_accumulator_value);
  expect_at_least_zero<Adagrad>("Adagrad", "epsilon", &AdagradOptions::epsilon);
}

TEST(Settings, OfSgdHaveRanges) {
  expect_common_ranges<Sgd, SgdOptions>("SGD");
  expect_at_least_zero<Sgd>("SGD", "momentum", &SgdOptions::momentum);
  expect_at_least_zero<Sgd>("SGD", "dampening", &SgdOptions::dampening);
  const auto nesterov = [](double momentum, double dampening) {
    return answer_to<Sgd>(
        SgdOptions{.momentum = momentum, .dampening = dampening, .nesterov = true});
  };
  EXPECT_EQ(nesterov(0, 0),
            "SGD: nesterov needs momentum above 0 and dampening 0, found momentum 0 and dampening "
            "0");
  EXPECT_EQ(nesterov(0.9, 0.5),
            "SGD: nesterov needs momentum above 0 and dampening 0, found momentum 0.9 and "
            "dampening 0.5");
  EXPECT_EQ(nesterov(0.9, 0), "no error");
}

TEST(Settings, OfOneBitAdamHaveRanges) {
  expect_common_ranges<OneBitAdam, OneBitAdamOptions>("OneBitAdam");
  expect_betas_below_one<OneBitAdam, OneBitAdamOptions>("OneBitAdam");
  expect_at_least_zero<OneBitAdam>("OneBitAdam", "epsilon", &OneBitAdamOptions::epsilon);
  EXPECT_EQ(answer_to<OneBitAdam>(OneBitAdamOptions{.freeze_step = -1}),
            "OneBitAdam: freeze_step is -1, expected at least 0");
  EXPECT_EQ(answer_to<OneBitAdam>(OneBitAdamOptions{.freeze_step = 0}), "no error");
}

// What schedules and checkpoints set has the ranges of what an optimizer is made with.
TEST(Settings, ThatAreSetLaterHaveTheSameRanges) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  AdamW adam(sharded, {});
  EXPECT_EQ(message_of([&] { adam.set_lr(kInfinity); }), "AdamW: lr is inf, expected at least 0");
  EXPECT_EQ(message_of([&] { adam.set_momentum(1); }),
            "AdamW: momentum is 1, expected 0 <= momentum < 1");
  EXPECT_EQ(message_of([&] { adam.set_beta2(1); }), "AdamW: beta2 is 1, expected 0 <= beta2 < 1");
  EXPECT_EQ(message_of([&] { adam.set_beta2(-0.5); }),
            "AdamW: beta2 is -0.5, expected 0 <= beta2 < 1");
  EXPECT_EQ(message_of([&] { adam.restore_num_steps(-1); }),
            "AdamW: num_steps is -1, expected at least 0");
  EXPECT_EQ(adam.lr(), AdamWOptions().lr);
  EXPECT_EQ(adam.momentum(), AdamWOptions().beta1);
  EXPECT_EQ(adam.beta2(), AdamWOptions().beta2);
  EXPECT_EQ(adam.num_steps(), 0);
  Adagrad adagrad(sharded, {});
  EXPECT_EQ(message_of([&] { adagrad.set_beta2(0.5); }),
            "Adagrad: beta2 cannot be set to 0.5: there is none");
}

}  // namespace
}  // namespace fullshard::testing
