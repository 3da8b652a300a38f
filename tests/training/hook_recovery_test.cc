// SPDX-License-Identifier: Apache-2.0
// Hooks of units between passes, after a failed one, beside another model, after the engine's end.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "fullshard/optim/sgd.h"
#include "tests/training/hook_cases.h"

namespace fullshard::testing {
namespace {

template <class Body>
void on_two_ranks(const Body& body) {
  for (const bool share : {true, false}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = seeded_case(Twice());
      ShardOptions options;
      options.share_host_copy = share;
      auto sharded = shard(model, world, options);
      body(model, sharded, world);
    });
  }
}

TEST(HookCases, EvaluationNeedsNoBackwardAndLeavesNothingGathered) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    at::NoGradGuard no_grad;
    const auto expected = seeded_case(Twice())(input_of_case(world.rank()));
    EXPECT_TRUE(at::equal(model(input_of_case(world.rank())), expected));
    EXPECT_EQ(sharded.counters().live_numel, 0);
  });
}

TEST(HookCases, EvaluationBetweenBackwardAndStepSeesTheOldValues) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    Sgd optimizer(sharded, {.lr = 0.01});
    for (int step = 0; step < 20; ++step) {
      model(input_of_case(world.rank())).pow(2).sum().backward();
      at::Tensor before, again;
      {
        at::NoGradGuard no_grad;
        before = model(input_of_case(7));
        again = model(input_of_case(7));
      }
      EXPECT_TRUE(at::equal(before, again)) << "step " << step;
      optimizer.step();
      optimizer.zero_grad();
    }
  });
}

TEST(HookCases, AutogradGradLeavesTheUnitsResting) {
  on_two_ranks([](Twice& model, ShardedModel& sharded, const World& world) {
    auto x = input_of_case(world.rank()).requires_grad_();
    const auto gradient = torch::autograd::grad({model(x).pow(2).sum()}, {x})[0];
    auto plain_x = input_of_case(world.rank()).requires_grad_();
    auto plain = seeded_case(Twice());
    const auto expected = torch::autograd::grad({plain(plain_x).pow(2).sum()}, {plain_x})[0];
    EXPECT_TRUE(at::equal(gradient, expected));
    EXPECT_EQ(sharded.counters().live_numel, 0);
    EXPECT_EQ(sharded.counters().reductions, 0);
    EXPECT_FALSE(sharded.pieces()[0].gradient.defined());
  });
}

struct Boom : torch::autograd::Function<Boom> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor x) { return x.clone(); }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list) {
    throw std::runtime_error("boom");
  }
};

struct FragileImpl : Unit {
  FragileImpl() {
    first = register_module("first", HookedBlock());
    second = register_module("second", HookedBlock());
  }
  at::Tensor forward(at::Tensor x, bool fail_in_forward, bool fail_in_backward) {
    x = first(x);
    if (fail_in_forward) throw std::runtime_error("boom");
    if (fail_in_backward) x = Boom::apply(x);
    return second(x);
  }
  HookedBlock first{nullptr}, second{nullptr};
};
FULLSHARD_UNIT(Fragile);

TEST(HookCases, AGoodStepFollowsAnExceptionInForwardOrBackward) {
  const auto make = [] { return seeded_case(Fragile()); };
  const auto loss = [](Fragile& model, int rank) {
    return model(input_of_case(rank), false, false).pow(2).sum();
  };
  const auto expected = expected_gradients(make, loss, 2);
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto model = make();
      ShardOptions options;
      options.sharding.zero_stage = stage;
      auto sharded = shard(model, world, options);
      EXPECT_THROW(model(input_of_case(0), true, false), std::runtime_error);
      EXPECT_EQ(sharded.counters().live_numel, 0);
      EXPECT_THROW(model(input_of_case(0), false, true).sum().backward(), std::exception);
      loss(model, world.rank()).backward();
      expect_gradients(sharded, expected);
      EXPECT_EQ(sharded.counters().live_numel, 0);
    });
  }
}

// Each sends its output to the other: their units alternate in forward and in backward.
TEST(HookCases, TwoModelsInOneProcess) {
  const auto make_left = [] { return seeded_case(Twice()); };
  const auto make_right = [] {
    auto model = seeded_case(Twice());
    at::NoGradGuard no_grad;
    for (auto& parameter : model->parameters()) parameter.mul_(0.7);
    return model;
  };
  const auto loss = [](Twice& left, Twice& right, int rank) {
    const auto x = left(input_of_case(rank));
    return (x - right(x)).pow(2).sum();
  };
  for (const int ranks : {1, 2, 3}) {
    auto right = make_right(), left = make_left();
    const auto expected_left = expected_gradients(
        make_left, [&](Twice& model, int rank) { return loss(model, right, rank); }, ranks);
    const auto expected_right = expected_gradients(
        make_right, [&](Twice& model, int rank) { return loss(left, model, rank); }, ranks);
    for (const bool share : {true, false}) {
      SCOPED_TRACE(fmt::format("{} ranks, share {}", ranks, share));
      run_ranks({.ranks = ranks}, [&](const World& world) {
        ShardOptions options;
        options.share_host_copy = share;
        auto own_left = make_left(), own_right = make_right();
        auto sharded_left = shard(own_left, world, options);
        auto sharded_right = shard(own_right, world, options);
        for (int repeat = 0; repeat < 2; ++repeat) {
          loss(own_left, own_right, world.rank()).backward();
          expect_gradients(sharded_left, expected_left);
          expect_gradients(sharded_right, expected_right);
          EXPECT_EQ(sharded_left.counters().live_numel, 0);
          EXPECT_EQ(sharded_right.counters().live_numel, 0);
          sharded_left.zero_grad();
          sharded_right.zero_grad();
        }
      });
    }
  }
}

TEST(HookCases, AnEngineThatEndsAfterAFailedForwardLeavesNoGatherInFlight) {
  for (const std::string backend : {"shm", "gloo"}) {
    run_ranks({.ranks = 2, .backend = backend}, [](const World& world) {
      auto model = seeded_case(Fragile());
      {
        ShardOptions options;
        options.share_host_copy = false;
        options.schedule.forward_prefetch = true;
        auto sharded = shard(model, world, options);
        model(input_of_case(0), false, false).sum().backward();  // the order is known from now on
        EXPECT_THROW(model(input_of_case(0), true, false), std::runtime_error);
        EXPECT_EQ(world.recorder().in_flight(), 1) << "the second unit, fetched ahead";
      }
      EXPECT_EQ(world.recorder().in_flight(), 0);
    });
  }
}

TEST(HookCases, AGraphThatOutlivesTheEngineIsHarmless) {
  auto model = seeded_case(Twice());
  at::Tensor loss;
  {
    auto sharded = shard(model, World::single());
    loss = model(input_of_case(0)).sum();
  }
  EXPECT_THROW(loss.backward(), std::exception);
}

}  // namespace
}  // namespace fullshard::testing
