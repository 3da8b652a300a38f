// SPDX-License-Identifier: Apache-2.0
// Steps that go wrong: what is skipped, what is said, and that all ranks do the same.
#include "fullshard/optim/stepper.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <functional>
#include <map>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/one_bit_adam.h"
#include "fullshard/optim/schedules/lr_schedule.h"
#include "fullshard/optim/schedules/trainer_schedules.h"

namespace fullshard {
namespace {

// Where a rank's next forward, or the backward after it, goes wrong.
enum class Fault { none, output, output_gradient, weight_gradient, loss };

struct SteppedBlockImpl : Unit {
  SteppedBlockImpl() : linear(register_module("linear", torch::nn::Linear(8, 8))) {}

  at::Tensor forward(const at::Tensor& x) {
    auto weight = linear->weight.view({8, 8});
    auto y = at::linear(x, weight, linear->bias);
    const auto spoil = [](const at::Tensor& gradient) { return gradient * INFINITY; };
    if (fault == Fault::output) y = y * std::nan("");
    if (fault == Fault::output_gradient) y.register_hook(spoil);
    if (fault == Fault::weight_gradient) weight.register_hook(spoil);
    return x + y.tanh();
  }

  torch::nn::Linear linear;
  Fault fault = Fault::none;
};
FULLSHARD_UNIT(SteppedBlock);

struct ChainImpl : Unit {
  ChainImpl() {
    for (int i = 0; i < 3; ++i)
      blocks.push_back(register_module("block" + std::to_string(i), SteppedBlock()));
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }
  std::vector<SteppedBlock> blocks;
};
FULLSHARD_UNIT(Chain);

Chain make_chain() {
  Chain chain;
  at::NoGradGuard no_grad;
  uint64_t seed = 1;
  for (auto& parameter : chain->parameters()) {
    parameter.normal_(0, 0.3, at::detail::createCPUGenerator(seed++));
  }
  return chain;
}

struct Script {
  StepperOptions stepper{};
  ShardOptions shard{};
  int steps = 4;
  int bad_rank = 1;
  int bad_block = 1;
  double lr = 1e-2;
  bool begins_broken = false;     // a weight of the bad block is NaN
  std::map<int, Fault> faults{};  // by step
};

struct StepperResult {
  std::vector<StepReport> reports;
  std::vector<double> rates;
  std::vector<at::Tensor> masters;  // after every step, one line
  std::string error;
};

at::Tensor masters_of(const ShardedModel& sharded) {
  std::vector<at::Tensor> parts;
  for (const auto& piece : sharded.pieces()) parts.push_back(piece.master.clone());
  return at::cat(parts);
}

StepperResult run_rank(const World& world, const Script& script) {
  auto chain = make_chain();
  if (script.begins_broken) {
    at::NoGradGuard no_grad;
    chain->blocks[script.bad_block]->linear->weight[7][3].fill_(std::nan(""));
  }
  auto sharded = shard(chain, world, script.shard);
  AdamW optimizer(sharded, {.lr = script.lr});
  LrScheduler scheduler(make_linear_schedule({.num_warmup_steps = 0, .num_training_steps = 100}),
                        optimizer);
  Stepper stepper(sharded, optimizer, script.stepper, &scheduler);
  StepperResult result;
  try {
    for (int step = 0; step < script.steps; ++step) {
      const auto found = script.faults.find(step);
      const auto fault = found == script.faults.end() || world.rank() != script.bad_rank
                             ? Fault::none
                             : found->second;
      chain->blocks[script.bad_block]->fault = fault;
      const auto x =
          at::randn({4, 8}, at::detail::createCPUGenerator(100 + step * 10 + world.rank()));
      auto loss = chain(x).pow(2).mean();
      if (fault == Fault::loss) loss = loss * INFINITY;
      stepper.backward(loss);
      result.reports.push_back(stepper.step());
      result.rates.push_back(optimizer.lr());
      result.masters.push_back(masters_of(sharded));
    }
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

std::vector<StepperResult> run_stepper(int size, const Script& script) {
  std::vector<StepperResult> results(size);
  run_ranks({size}, [&](const World& world) { results[world.rank()] = run_rank(world, script); });
  return results;
}

Script fp16_script(std::map<int, Fault> faults) {
  Script script;
  script.shard.param_dtype = at::kHalf;
  script.stepper.loss_scale = LossScaleOptions{.initial_scale_power = 4, .hysteresis = 1};
  script.faults = std::move(faults);
  return script;
}

TEST(Stepper, AnOverflowIsSkippedOnAllRanksAlikeAndNamesTheParameterAndTheRank) {
  const auto results = run_stepper(3, fp16_script({{1, Fault::weight_gradient}}));
  for (const auto& result : results) {
    ASSERT_EQ(result.error, "");
    ASSERT_EQ(result.reports.size(), 4u);
    for (int step = 0; step < 4; ++step) EXPECT_EQ(result.reports[step].skipped, step == 1);
    EXPECT_EQ(result.reports[1].reason,
              "step 2: gradients overflowed at loss scale 16, first in the gradient of parameter "
              "'block1.linear.weight' of unit 'block1' on rank 1");
    EXPECT_EQ(result.reports[1].loss_scale, 16);
    EXPECT_EQ(result.reports[2].loss_scale, 8);
    EXPECT_TRUE(at::equal(result.masters[0], result.masters[1]));
    EXPECT_FALSE(at::equal(result.masters[1], result.masters[2]));
    // A skipped step does not move the schedule on.
    EXPECT_EQ(result.reports[1].lr, result.reports[2].lr);
    EXPECT_GT(result.reports[2].lr, result.reports[3].lr);
  }
}

TEST(Stepper, ANanInAForwardIsDiagnosedWithUnitRankCausesAndRemedies) {
  Script script;
  script.faults = {{2, Fault::output}};
  for (const auto& result : run_stepper(2, script)) {
    EXPECT_EQ(result.reports.size(), 2u);
    EXPECT_EQ(result.error,
              "step 3: the loss is nan on rank 1; the first value that is not finite appeared in "
              "the forward of unit 'block1' on rank 1. Likely causes:\n"
              "  - the learning rate of 0.0098 is too high: lower it, or warm up for more steps\n"
              "  - the data: an empty or fully masked batch, labels out of range, or values that "
              "are not finite in the input");
  }
}

TEST(Stepper, WeightsThatAreNotFiniteFromTheBeginningAreNamedAndNothingElseBlamed) {
  Script script;
  script.begins_broken = true;
  for (const int size : {1, 2, 3}) {
    for (const auto& result : run_stepper(size, script)) {
      EXPECT_TRUE(result.error.starts_with("step 1: the loss is nan on rank 0; the first value "))
          << result.error;
      EXPECT_TRUE(result.error.ends_with(
          ". Parameter 'block1.linear.weight' is not finite, and no step has changed it: the "
          "weights that training begins with hold NaN or infinity. Check what they were loaded "
          "from (fullshard checkpoint verify names such tensors)"))
          << result.error;
    }
  }
}

TEST(Stepper, WeightsThatAStepHasMadeInfiniteAreNamedWithTheLearningRate) {
  Script script;
  script.lr = 1e39;
  for (const auto& result : run_stepper(2, script)) {
    EXPECT_TRUE(result.error.starts_with("step 2: the loss is nan on rank 0")) << result.error;
    EXPECT_NE(result.error.find(". Parameter 'block0.linear.weight' is not finite any more. Likely "
                                "causes:\n  - the learning rate of "),
              std::string::npos)
        << result.error;
  }
}

TEST(Stepper, TheBackwardOfAUnitIsToldFromItsForward) {
  Script script;
  script.bad_block = 2;
  script.bad_rank = 0;
  script.faults = {{0, Fault::output_gradient}};
  for (const auto& result : run_stepper(2, script)) {
    ASSERT_EQ(result.error, "");  // the loss is fine, so the step is skipped as an overflow
    EXPECT_EQ(result.reports[0].reason,
              "step 1: gradients are not finite, first in the backward of unit "
              "'block2' on rank 0");
    EXPECT_FALSE(result.reports[1].skipped);
  }
}

// Gradients of a residual stream are added in place: one tensor goes through all blocks.
TEST(Stepper, TheBackwardOfAUnitInTheMiddleIsToldFromItsNeighbours) {
  Script script;
  script.bad_block = 1;
  script.bad_rank = 1;
  script.faults = {{0, Fault::output_gradient}};
  for (const auto& result : run_stepper(2, script)) {
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.reports[0].reason,
              "step 1: gradients are not finite, first in the backward of unit "
              "'block1' on rank 1");
  }
}

TEST(Stepper, AnInfiniteLossOfSoundOutputsIsTheLossesOwnFault) {
  Script script;
  script.faults = {{0, Fault::loss}};
  for (const auto& result : run_stepper(2, script)) {
    EXPECT_TRUE(result.error.starts_with(
        "step 1: the loss is inf on rank 1; the first value that is not finite appeared in the "
        "backward of the loss on rank 1. Likely causes:"))
        << result.error;
  }
}

TEST(Stepper, GoesOnAfterABreakdownWhenToldTo) {
  Script script;
  script.faults = {{1, Fault::output}};
  script.stepper.on_breakdown = OnBreakdown::go_on;
  for (const auto& result : run_stepper(2, script)) {
    ASSERT_EQ(result.error, "");
    EXPECT_TRUE(result.reports[1].skipped);
    EXPECT_TRUE(result.reports[1].reason.starts_with("step 2: the loss is nan on rank 1"));
    EXPECT_TRUE(at::equal(result.masters[0], result.masters[1]));
    EXPECT_FALSE(result.reports[2].skipped);
  }
}

TEST(Stepper, AScaleStuckAtItsMinimumIsDiagnosed) {
  auto script = fp16_script(
      {{0, Fault::weight_gradient}, {1, Fault::weight_gradient}, {2, Fault::weight_gradient}});
  script.stepper.loss_scale->initial_scale_power = 1;
  for (const auto& result : run_stepper(2, script)) {
    EXPECT_EQ(result.reports.size(), 1u);
    EXPECT_TRUE(result.error.starts_with(
        "step 2: gradients overflow although the loss scale is at its minimum of 1 and cannot be "
        "lowered; the first value that is not finite appeared in the gradient of parameter "
        "'block1.linear.weight' of unit 'block1' on rank 1. Likely causes:\n"
        "  - a model trained in bf16 runs in fp16, whose largest value is 65504: use bf16 or fp32\n"
        "  - the scale began too low to recover (initial_scale_power 1): try 32\n"))
        << result.error;
  }
}

// One may be an accident of the data. Nothing changes between many, so they would go on for ever.
TEST(Stepper, TenOverflowsInARowWithoutAScaleThatChangesAreABreakdown) {
  for (const bool is_fixed : {false, true}) {
    Script script;
    script.steps = 30;
    if (is_fixed) script.stepper.loss_scale = LossScaleOptions{.loss_scale = 2};
    for (int step = 0; step < 30; ++step) {
      if (step != 5) script.faults[step] = Fault::output_gradient;
    }
    for (const auto& result : run_stepper(2, script)) {
      EXPECT_EQ(result.reports.size(), 15u);  // nine after the good one, of which the tenth ends it
      // Beside a loss scale gradients of parameters are looked at too.
      const std::string place =
          is_fixed ? "gradient of parameter 'block1.linear.bias' of unit" : "backward of unit";
      EXPECT_TRUE(result.error.starts_with(
          "step 16: gradients were not finite for 10 steps in a row, and there is no loss scale to "
          "lower; the first value that is not finite appeared in the " +
          place + " 'block1' on rank 1. Likely causes:\n  - the learning rate of "))
          << result.error;
    }
  }
}

TEST(Stepper, AFixedScaleOfAPowerOfTwoChangesNoBits) {
  Script plain, scaled;
  plain.stepper.max_grad_norm = scaled.stepper.max_grad_norm = 0.1;
  scaled.stepper.loss_scale = LossScaleOptions{.loss_scale = 1024};
  for (const int size : {1, 2}) {
    const auto expected = run_stepper(size, plain), found = run_stepper(size, scaled);
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(expected[0].reports[step].grad_norm, found[0].reports[step].grad_norm);
      EXPECT_TRUE(at::equal(expected[0].masters[step], found[0].masters[step]));
    }
  }
}

TEST(Stepper, ScriptedOverflowsGiveTheSameBitsUnderEveryStrategy) {
  at::Tensor first;
  for (const auto strategy : {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard}) {
    auto script = fp16_script({{1, Fault::weight_gradient}});
    script.shard.sharding.strategy = strategy;
    std::map<std::string, at::Tensor> full;
    run_ranks({2}, [&](const World& world) {
      auto chain = make_chain();
      auto sharded = shard(chain, world, script.shard);
      AdamW optimizer(sharded, {.lr = 1e-2});
      Stepper stepper(sharded, optimizer, script.stepper);
      for (int step = 0; step < 3; ++step) {
        chain->blocks[1]->fault =
            step == 1 && world.rank() == 1 ? Fault::weight_gradient : Fault::none;
        stepper.backward(
            chain(at::randn({4, 8}, at::detail::createCPUGenerator(step * 10 + world.rank())))
                .pow(2)
                .mean());
        EXPECT_EQ(stepper.step().skipped, step == 1);
      }
      const auto scope = sharded.gather_full();
      if (world.rank() != 0) return;
      for (const auto& item : chain->named_parameters()) {
        full[item.key()] = item.value().detach().clone();
      }
    });
    std::vector<at::Tensor> parts;
    for (const auto& [name, value] : full) parts.push_back(value.reshape({-1}));
    const auto line = at::cat(parts);
    if (!first.defined()) first = line;
    EXPECT_TRUE(at::equal(first, line));
  }
}

TEST(Stepper, LocalGradientsThatOverflowOnOneRankAreSkippedByAll) {
  std::vector<std::vector<bool>> skipped(3);
  run_ranks({3}, [&](const World& world) {
    auto chain = make_chain();
    ShardOptions options;
    options.sharding.strategy = Strategy::no_shard;
    auto sharded = shard(chain, world, options);
    OneBitAdam optimizer(sharded, {.lr = 1e-3, .freeze_step = 2});
    Stepper stepper(sharded, optimizer);
    for (int step = 0; step < 6; ++step) {
      chain->blocks[0]->fault =
          step == 4 && world.rank() == 2 ? Fault::weight_gradient : Fault::none;
      const auto seed = static_cast<uint64_t>(step * 10 + world.rank());
      stepper.backward(
          chain(at::randn({4, 8}, at::detail::createCPUGenerator(seed))).pow(2).mean());
      skipped[world.rank()].push_back(stepper.step().skipped);
    }
  });
  const std::vector<bool> expected = {false, false, false, false, true, false};
  for (const auto& ranks : skipped) EXPECT_EQ(ranks, expected);
}

TEST(Stepper, RefusesWhatItCannotUse) {
  run_ranks({1}, [](const World& world) {
    auto chain = make_chain();
    auto sharded = shard(chain, world);
    AdamW optimizer(sharded, {.lr = 1e-2});
    const auto message_of = [](const std::function<void()>& act) -> std::string {
      try {
        act();
      } catch (const Error& error) {
        return error.what();
      }
      return "accepted";
    };
    EXPECT_EQ(message_of([&] { Stepper(sharded, optimizer, {.max_grad_norm = -1}); }),
              "max_grad_norm is -1, expected 0 (no clipping) or a positive number");
    EXPECT_EQ(message_of([&] { Stepper(sharded, optimizer, {.accumulation_steps = 0}); }),
              "accumulation_steps is 0, expected at least 1");
    Stepper stepper(sharded, optimizer);
    EXPECT_EQ(message_of([&] {
                stepper.backward(chain(at::ones({2, 8})));
              }),
              "backward: the loss has 16 elements, expected one; reduce it to its mean first");
  });
}

}  // namespace
}  // namespace fullshard
