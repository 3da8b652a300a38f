// SPDX-License-Identifier: Apache-2.0
// A schedule joined to an optimizer: which rates each step sees, and what is saved.
#include "fullshard/optim/lr_scheduler.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/schedules/cycle_schedules.h"
#include "fullshard/optim/schedules/lr_torch_schedule.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "fullshard/optim/sgd.h"

namespace fullshard::optim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct ScheduledNetImpl : Unit {
  ScheduledNetImpl() { linear = register_module("linear", torch::nn::Linear(3, 2)); }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(ScheduledNet);

// From 1 to 3 and back in four steps.
std::unique_ptr<LrSchedule> short_cycle() {
  return make_one_cycle({.cycle_min_lr = 1.0,
                         .cycle_max_lr = 3.0,
                         .cycle_first_step_size = 2,
                         .cycle_min_mom = 0.5,
                         .cycle_max_mom = 0.75});
}

torch::optim::AdamW make_torch_adamw(double lr) {
  return torch::optim::AdamW({at::zeros({2}).requires_grad_()}, torch::optim::AdamWOptions(lr));
}

double lr_of(const torch::optim::Optimizer& optimizer, int group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

template <class Options>
std::tuple<double, double> betas_of(const torch::optim::Optimizer& optimizer, int group = 0) {
  return static_cast<const Options&>(optimizer.param_groups()[group].options()).betas();
}

TEST(LrScheduler, SetsTheRatesOfStepZeroAndThenOfEachStep) {
  auto optimizer = make_torch_adamw(8.0);
  LrScheduler scheduler(make_linear_schedule({.num_warmup_steps = 2, .num_training_steps = 4}),
                        optimizer);
  std::vector<double> lrs;
  for (int step = 0; step < 6; ++step) {
    EXPECT_EQ(scheduler.num_steps(), step);
    EXPECT_EQ(scheduler.rates().lr, lr_of(optimizer));
    lrs.push_back(lr_of(optimizer));
    scheduler.step();
  }
  EXPECT_THAT(lrs, ElementsAre(0.0, 4.0, 8.0, 4.0, 0.0, 0.0));
}

TEST(LrScheduler, RestoresTheTailOfARun) {
  const auto run = [](int from, int to) {
    auto optimizer = make_torch_adamw(8.0);
    LrScheduler scheduler(short_cycle(), optimizer);
    if (from > 0) scheduler.restore(from);
    std::vector<std::tuple<double, double>> seen;
    for (int step = from; step < to; ++step) {
      const auto [beta1, beta2] = betas_of<torch::optim::AdamWOptions>(optimizer);
      seen.emplace_back(lr_of(optimizer), beta1);
      EXPECT_EQ(scheduler.num_steps(), step);
      scheduler.step();
    }
    return seen;
  };
  const auto whole = run(0, 6);
  const auto tail = run(3, 6);
  EXPECT_EQ(tail, std::vector(whole.begin() + 3, whole.end()));
  EXPECT_EQ(whole[3], std::make_tuple(2.0, 0.625));
}

TEST(LrScheduler, KeepsTheRatiosOfTorchGroups) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{at::zeros({2}).requires_grad_()},
                      std::make_unique<torch::optim::SGDOptions>(8.0));
  groups.emplace_back(std::vector{at::zeros({3}).requires_grad_()},
                      std::make_unique<torch::optim::SGDOptions>(2.0));
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(1.0));
  LrScheduler scheduler(make_linear_schedule({.num_training_steps = 4}), optimizer);
  scheduler.step();
  EXPECT_EQ(lr_of(optimizer, 0), 6.0);
  EXPECT_EQ(lr_of(optimizer, 1), 1.5);
  EXPECT_EQ(scheduler.rates(1).lr, 1.5);
  // A schedule that states its own rate gives it to all.
  LrScheduler absolute(make_custom_schedule([](int64_t) { return 0.5; }), optimizer);
  EXPECT_EQ(lr_of(optimizer, 0), 0.5);
  EXPECT_EQ(lr_of(optimizer, 1), 0.5);
}

TEST(LrScheduler, CyclesTheBetasOfTorchsAdam) {
  torch::optim::Adam optimizer({at::zeros({2}).requires_grad_()}, torch::optim::AdamOptions(8.0));
  LrScheduler scheduler(short_cycle(), optimizer);
  EXPECT_THAT(scheduler.warnings(), IsEmpty());
  EXPECT_EQ(betas_of<torch::optim::AdamOptions>(optimizer), std::make_tuple(0.5, 0.99));
  scheduler.step();
  EXPECT_EQ(betas_of<torch::optim::AdamOptions>(optimizer), std::make_tuple(0.625, 0.99));
  scheduler.step();
  EXPECT_EQ(betas_of<torch::optim::AdamOptions>(optimizer), std::make_tuple(0.5, 0.99));
  EXPECT_EQ(scheduler.rates().momentum, 0.5);
  EXPECT_EQ(lr_of(optimizer), 3.0);
}

TEST(LrScheduler, LeavesTheMomentumOfSgdAloneAndSaysSo) {
  torch::optim::SGD optimizer({at::zeros({2}).requires_grad_()},
                              torch::optim::SGDOptions(8.0).momentum(0.125));
  LrScheduler scheduler(short_cycle(), optimizer);
  EXPECT_EQ(
      static_cast<torch::optim::SGDOptions&>(optimizer.param_groups()[0].options()).momentum(),
      0.125);
  EXPECT_FALSE(scheduler.rates().momentum.has_value());
  EXPECT_THAT(scheduler.warnings(),
              ElementsAre("OneCycle: the momentum is not cycled: the optimizer has no betas; use "
                          "Adam or AdamW, or set cycle_momentum to false"));
}

TEST(LrScheduler, DrivesOurOptimizers) {
  ScheduledNet net;
  auto sharded = shard(net, World::single(), {});
  AdamW adamw(sharded, {.lr = 8.0});
  LrScheduler cycle(short_cycle(), adamw);
  EXPECT_EQ(adamw.momentum(), 0.5);
  cycle.step();
  EXPECT_EQ(adamw.lr(), 2.0);
  EXPECT_EQ(adamw.momentum(), 0.625);
  EXPECT_EQ(adamw.beta2(), 0.99);

  Sgd sgd(sharded, {.lr = 8.0, .momentum = 0.125});
  LrScheduler linear(make_linear_schedule({.num_training_steps = 4}), sgd);
  linear.restore(3);
  EXPECT_EQ(sgd.lr(), 2.0);
  LrScheduler without_betas(short_cycle(), sgd);
  EXPECT_EQ(sgd.momentum(), 0.125);
  EXPECT_EQ(without_betas.warnings().size(), 1);
  LrScheduler users_own(make_custom_schedule([](int64_t step) { return 1.0 + step; }), sgd);
  users_own.step();
  EXPECT_EQ(sgd.lr(), 2.0);
}

// As torch's initial_lr: what one schedule has set is not what the next one multiplies.
TEST(LrScheduler, ASecondOneMultipliesTheSameRate) {
  ScheduledNet net;
  auto sharded = shard(net, World::single(), {});
  Sgd sgd(sharded, {.lr = 8.0});
  LrScheduler first(make_linear_schedule({.num_training_steps = 4}), sgd);
  first.step();
  first.step();
  EXPECT_EQ(sgd.lr(), 4.0);
  EXPECT_EQ(sgd.base_lr(), 8.0);
  LrScheduler second(make_linear_schedule({.num_training_steps = 8}), sgd);
  EXPECT_EQ(sgd.lr(), 8.0);
  second.restore(2);
  EXPECT_EQ(sgd.lr(), 6.0);
  sgd.set_lr(2.0);  // the caller's word counts
  LrScheduler third(make_linear_schedule({.num_training_steps = 4}), sgd);
  third.step();
  EXPECT_EQ(sgd.lr(), 1.5);
}

TEST(LrScheduler, FollowsATorchScheduler) {
  const auto make = [](torch::optim::Optimizer& optimizer) {
    return std::make_unique<torch::optim::StepLR>(optimizer, 2, 0.5);
  };
  auto reference = make_torch_adamw(8.0);
  const auto expected = make(reference);
  auto optimizer = make_torch_adamw(8.0);
  LrScheduler scheduler(make_torch_schedule(make), optimizer);
  for (int step = 0; step < 7; ++step) {
    EXPECT_EQ(lr_of(optimizer), lr_of(reference)) << step;
    expected->step();
    scheduler.step();
  }
  EXPECT_EQ(lr_of(optimizer), 1.0);
  scheduler.restore(0);
  EXPECT_EQ(lr_of(optimizer), 8.0);
}

TEST(LrScheduler, RefusesAStateThatIsNone) {
  auto optimizer = make_torch_adamw(8.0);
  LrScheduler scheduler(make_constant_schedule(), optimizer);
  try {
    scheduler.restore(-1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "LrScheduler: the saved number of steps is -1, expected 0 or more");
  }
}

}  // namespace
}  // namespace fullshard::optim
