// SPDX-License-Identifier: Apache-2.0
// How many backwards belong to a step. What becomes of steps that go wrong: tests/training.
#include "fullshard/optim/stepper.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "fullshard/optim/sgd.h"
#include "tests/errors.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

constexpr const char* kTooFew =
    "step(): 1 of 2 micro-batches had their backward, and losses are divided by "
    "accumulation_steps 2; call backward() for each of them first";

TEST(Stepper, RefusesAStepOnAPartOfTheLoss) {
  for (const bool reduces_once : {false, true}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = make_fixed();
      auto sharded = shard(model, world);
      Sgd optimizer(sharded, {.lr = 0.5});
      Stepper stepper(sharded, optimizer, {.accumulation_steps = 2, .reduces_once = reduces_once});
      stepper.backward(model(fixed_gradients(0, world.rank())));
      EXPECT_EQ(message_of([&] { stepper.step(); }), kTooFew);
      EXPECT_EQ(message_of([&] { stepper.step_without_norm(); }), kTooFew);
      EXPECT_EQ(stepper.num_steps(), 0);
      stepper.backward(model(fixed_gradients(1, world.rank())));
      EXPECT_FALSE(stepper.step().skipped);
      EXPECT_EQ(stepper.num_steps(), 1);
    });
  }
}

// An error of torch's, as when memory is short, that the caller's loop goes on after.
void fail_backward(Stepper& stepper, const at::Tensor& loss) {
  loss.register_hook([](const at::Tensor&) -> void { throw std::runtime_error("no memory"); });
  EXPECT_THROW(stepper.backward(loss), std::exception);
}

TEST(Stepper, DoesNotCountABackwardThatFailed) {
  for (const bool reduces_once : {false, true}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = make_fixed();
      auto sharded = shard(model, world);
      Sgd optimizer(sharded, {.lr = 0.5});
      Stepper stepper(sharded, optimizer, {.accumulation_steps = 2, .reduces_once = reduces_once});
      fail_backward(stepper, model(fixed_gradients(0, world.rank())));
      stepper.backward(model(fixed_gradients(1, world.rank())));
      EXPECT_EQ(message_of([&] { stepper.step(); }), kTooFew);
      const auto before = sharded.counters().reductions;
      stepper.backward(model(fixed_gradients(2, world.rank())));
      EXPECT_GT(sharded.counters().reductions, before);
      EXPECT_FALSE(stepper.step().skipped);
    });
  }
}

TEST(Stepper, RefusesOneMoreBackwardThanLossesAreDividedBy) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  Sgd optimizer(sharded, {.lr = 0.5});
  Stepper stepper(sharded, optimizer, {.accumulation_steps = 2});
  const auto backward = [&](int step) { stepper.backward(model(fixed_gradients(step, 0))); };
  backward(0);
  backward(1);
  EXPECT_EQ(message_of([&] { backward(2); }),
            "backward(): it would be that of micro-batch 3, and losses are divided by "
            "accumulation_steps 2; call step() first, or set accumulation_steps to the number of "
            "backwards");
  EXPECT_FALSE(stepper.step().skipped);  // with the two that there were
  backward(3);
  sharded.zero_grad();  // starts over
  backward(4);
  EXPECT_EQ(message_of([&] { stepper.step(); }), kTooFew);
  backward(5);
  EXPECT_FALSE(stepper.step().skipped);
}

TEST(Stepper, StepsAfterBackwardsOfTheCallersOwn) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  Sgd optimizer(sharded, {.lr = 0.5});
  Stepper stepper(sharded, optimizer, {.accumulation_steps = 2});
  for (const int micro : {0, 1}) {
    (model(fixed_gradients(micro, 0)) * stepper.loss_factor()).backward();
  }
  EXPECT_FALSE(stepper.step().skipped);
}

}  // namespace
}  // namespace fullshard::testing
