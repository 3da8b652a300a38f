// SPDX-License-Identifier: Apache-2.0
// Rates that change from step to step: against the same mathematics with each step's rates, against
// torch's optimizers under the same schedule, and bit for bit against optimizers that were made
// with what others were set to.
#include <gtest/gtest.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "fullshard/optim/lr_scheduler.h"
#include "fullshard/optim/schedules/cycle_schedules.h"
#include "fullshard/optim/schedules/trainer_schedules.h"
#include "tests/optim/naive_optimizers.h"

namespace fullshard::testing {
namespace {

using MakeSchedule = std::function<std::unique_ptr<LrSchedule>()>;

constexpr int kScheduledSteps = 8;

// A rate of its own for every step; the optimizer's is that of the third only.
std::unique_ptr<LrSchedule> up_and_down() {
  return make_linear_schedule({.num_warmup_steps = 2, .num_training_steps = kScheduledSteps});
}

// Betas too: up for three steps, down for three, and then a decay of the rate.
std::unique_ptr<LrSchedule> cycled_betas() {
  return make_one_cycle({.cycle_min_lr = 0.002,
                         .cycle_max_lr = 0.02,
                         .decay_lr_rate = 0.5,
                         .cycle_first_step_size = 3,
                         .decay_step_size = 1,
                         .cycle_min_mom = 0.6,
                         .cycle_max_mom = 0.95});
}

FixedRun scheduled_run(int ranks, const MakeSchedule& schedule) {
  FixedRun run{.ranks = ranks, .steps = kScheduledSteps};
  run.schedule = schedule;
  return run;
}

// The options with the rates of each step.
template <class Options>
OptionsOf<Options> scheduled(const Options& options, const MakeSchedule& make) {
  const std::shared_ptr<LrSchedule> schedule = make();
  return [=](int step) {
    const auto rates = schedule->at(step - 1, options.lr);
    auto now = options;
    now.lr = rates.lr;
    if constexpr (requires { now.beta1; }) {
      now.beta1 = rates.momentum.value_or(now.beta1);
      now.beta2 = rates.beta2.value_or(now.beta2);
    }
    return now;
  };
}

struct ScheduledSubject {
  std::string name;
  MakeOptimizer make;
  std::function<NaiveStep(const MakeSchedule&)> naive;
  int most_ranks = 3;
};

template <class Kind, class Options>
ScheduledSubject scheduled_subject(const std::string& name, const Options& options,
                                   NaiveStep (*naive)(const OptionsOf<Options>&),
                                   int most_ranks = 3) {
  return {name, [=](ShardedModel& model) { return std::make_unique<Kind>(model, options); },
          [=](const MakeSchedule& schedule) { return naive(scheduled(options, schedule)); },
          most_ranks};
}

std::vector<ScheduledSubject> scheduled_subjects() {
  return {
      scheduled_subject<AdamW>("AdamW", AdamWOptions{.lr = 0.01, .weight_decay = 0.5}, naive_adam),
      scheduled_subject<AdamW>(
          "Adam", AdamWOptions{.lr = 0.01, .weight_decay = 0.5, .adam_w_mode = false}, naive_adam),
      scheduled_subject<AdamW>(
          "AdamWithoutCorrection",
          AdamWOptions{.lr = 0.01, .weight_decay = 0.5, .bias_correction = false}, naive_adam),
      scheduled_subject<Sgd>("SGD", SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.5},
                             naive_sgd),
      scheduled_subject<Sgd>("PlainSGD", SgdOptions{.lr = 0.01, .weight_decay = 0.5}, naive_sgd),
      scheduled_subject<Adagrad>("Adagrad",
                                 AdagradOptions{.lr = 0.01, .lr_decay = 0.25, .weight_decay = 0.5},
                                 naive_adagrad),
      scheduled_subject<Lion>("Lion", LionOptions{.lr = 0.01, .weight_decay = 0.5}, naive_lion),
      scheduled_subject<Lamb>("LAMB", LambOptions{.lr = 0.01, .weight_decay = 0.5}, naive_lamb),
      scheduled_subject<OneBitAdam>(
          "OneBitAdam", OneBitAdamOptions{.lr = 0.01, .weight_decay = 0.5, .freeze_step = 4},
          naive_one_bit_adam, 1)};
}

class ScheduledRates : public ::testing::TestWithParam<int> {};

TEST_P(ScheduledRates, AreThoseOfEveryStep) {
  const auto subject = scheduled_subjects()[GetParam()];
  for (const auto schedule : {up_and_down, cycled_betas}) {
    for (int ranks = 1; ranks <= subject.most_ranks; ++ranks) {
      const auto run = scheduled_run(ranks, schedule);
      const auto what = fmt::format("{}, {}, {} ranks", subject.name, schedule()->name(), ranks);
      expect_close(train_fixed(run, subject.make).masters,
                   train_naively(run, subject.naive(schedule)), what, 2e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ScheduledRates, ::testing::Range(0, 9),
                         [](const auto& test) { return scheduled_subjects()[test.param].name; });

// Whole parameters stepped by torch alone under the same schedule.
template <class Torch, class TorchOptions>
Values scheduled_by_torch(const FixedRun& run, const TorchOptions& options) {
  auto model = make_fixed();
  Torch optimizer(model->parameters(), options);
  LrScheduler scheduler(run.schedule(), optimizer);
  for (int step = 0; step < run.steps; ++step) {
    const auto gradients = mean_gradients(step, run.ranks);
    const double factor = clip_factor(gradients, run.clip);
    for (auto& item : model->named_parameters()) {
      item.value().mutable_grad() = gradients.at(item.key()) * factor;
    }
    optimizer.step();
    scheduler.step();
  }
  Values values;
  for (const auto& item : model->named_parameters()) {
    values[item.key()] = item.value().detach().to(at::kDouble);
  }
  return values;
}

template <class Torch, class Kind, class TorchOptions, class Options>
void expect_torchs_numbers(const TorchOptions& theirs, const Options& ours) {
  for (const auto schedule : {up_and_down, cycled_betas}) {
    const auto run = scheduled_run(2, schedule);
    const auto outcome =
        train_fixed(run, [&](ShardedModel& model) { return std::make_unique<Kind>(model, ours); });
    expect_close(outcome.masters, scheduled_by_torch<Torch>(run, theirs), schedule()->name(), 2e-6);
  }
}

TEST(ScheduledTorch, AdamWHasItsNumbers) {
  expect_torchs_numbers<torch::optim::AdamW, AdamW>(
      torch::optim::AdamWOptions(0.01).weight_decay(0.5),
      AdamWOptions{.lr = 0.01, .weight_decay = 0.5});
}

TEST(ScheduledTorch, AdamHasItsNumbers) {
  expect_torchs_numbers<torch::optim::Adam, AdamW>(
      torch::optim::AdamOptions(0.01).weight_decay(0.5),
      AdamWOptions{.lr = 0.01, .weight_decay = 0.5, .adam_w_mode = false});
}

TEST(ScheduledTorch, SgdHasItsNumbers) {
  expect_torchs_numbers<torch::optim::SGD, Sgd>(
      torch::optim::SGDOptions(0.01).momentum(0.9).dampening(0.25).weight_decay(0.5),
      SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.5, .dampening = 0.25});
}

TEST(ScheduledTorch, AdagradHasItsNumbers) {
  expect_torchs_numbers<torch::optim::Adagrad, Adagrad>(
      torch::optim::AdagradOptions(0.01).lr_decay(0.25).weight_decay(0.5),
      AdagradOptions{.lr = 0.01, .lr_decay = 0.25, .weight_decay = 0.5});
}

// An optimizer that was set to other rates has the bits of one that was made with them.
template <class Kind, class Options>
void expect_set_is_made(const Options& first, const Options& wanted, const ShardOptions& how = {}) {
  for (const int ranks : {1, 2}) {
    FixedRun run{.ranks = ranks, .shard = how, .steps = kScheduledSteps};
    const auto made = train_fixed(
        run, [&](ShardedModel& model) { return std::make_unique<Kind>(model, wanted); });
    const auto set = train_fixed(run, [&](ShardedModel& model) {
      auto optimizer = std::make_unique<Kind>(model, first);
      optimizer->set_lr(wanted.lr);
      if constexpr (requires { wanted.beta1; }) {
        optimizer->set_momentum(wanted.beta1);
        optimizer->set_beta2(wanted.beta2);
      } else if constexpr (requires { wanted.momentum; }) {
        optimizer->set_momentum(wanted.momentum);
      }
      return optimizer;
    });
    expect_same_bits(set.masters, made.masters, fmt::format("{} ranks", ranks));
    for (size_t i = 0; i < made.states.size(); ++i) {
      expect_same_bits(set.states[i], made.states[i], fmt::format("{} ranks, state", ranks));
    }
  }
}

TEST(ScheduledSettings, CountAsIfTheOptimizerWereMadeWithThem) {
  expect_set_is_made<AdamW>(
      AdamWOptions{.lr = 1, .beta1 = 0.1, .beta2 = 0.2, .weight_decay = 0.5},
      AdamWOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  expect_set_is_made<Lamb>(
      LambOptions{.lr = 1, .beta1 = 0.1, .beta2 = 0.2, .weight_decay = 0.5},
      LambOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  expect_set_is_made<Lion>(
      LionOptions{.lr = 1, .beta1 = 0.1, .beta2 = 0.2, .weight_decay = 0.5},
      LionOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9, .weight_decay = 0.5});
  expect_set_is_made<Sgd>(SgdOptions{.lr = 1, .momentum = 0.1, .weight_decay = 0.5},
                          SgdOptions{.lr = 0.01, .momentum = 0.8, .weight_decay = 0.5});
  expect_set_is_made<Adagrad>(AdagradOptions{.lr = 1, .weight_decay = 0.5},
                              AdagradOptions{.lr = 0.01, .weight_decay = 0.5});
}

// Its compressed steps have no simple formula on two ranks.
TEST(ScheduledSettings, CountForOneBitAdamBeforeAndAfterTheFreeze) {
  ShardOptions how;
  how.sharding.strategy = Strategy::no_shard;
  const auto options = [](double lr, double beta1, double beta2) {
    return OneBitAdamOptions{
        .lr = lr, .beta1 = beta1, .beta2 = beta2, .weight_decay = 0.5, .freeze_step = 4};
  };
  expect_set_is_made<OneBitAdam>(options(1, 0.1, 0.2), options(0.01, 0.8, 0.9), how);
}

}  // namespace
}  // namespace fullshard::testing
