// SPDX-License-Identifier: Apache-2.0
// The global norm of parameters that are sharded, replicated, frozen or of different dtypes.
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/sgd.h"

namespace fullshard {
namespace {

// The gradients of its parameters are `x` times 1, 2 and 3; the frozen one has none.
struct MixedImpl : Unit {
  MixedImpl()
      : narrow(register_parameter("narrow", at::ones({9}, at::kBFloat16))),
        plain(register_parameter("plain", at::ones({7}))),
        wide(register_parameter("wide", at::ones({5}, at::kDouble))),
        frozen(register_parameter("frozen", at::ones({100}), /*requires_grad=*/false)) {}

  at::Tensor forward(double x) {
    return (narrow.sum() * x).to(at::kDouble) + (plain.sum() * (2 * x)).to(at::kDouble) +
           wide.sum() * (3 * x) + frozen.sum().to(at::kDouble);
  }
  at::Tensor narrow, plain, wide, frozen;
};
FULLSHARD_UNIT(Mixed);

// Rank r has x = 1 + r, so the mean over W ranks is (W + 1) / 2.
double mean_x(int ranks) { return (ranks + 1) / 2.0; }

template <class Body>
void for_every_clipping(const Body& body) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int strategy : {1, 2, 3}) {
      for (const int factor : {0, 2}) {
        if (factor > 0 && (ranks != 4 || strategy == 3)) continue;  // a hybrid mesh of 2 x 2
        SCOPED_TRACE(::testing::Message()
                     << ranks << " ranks, strategy " << strategy << ", factor " << factor);
        ShardOptions options;
        options.sharding.strategy = parse_strategy(std::to_string(strategy));
        if (factor > 0) options.sharding.sharding_factor = factor;
        run_ranks({ranks}, [&](const World& world) {
          Mixed model;
          auto sharded = shard(model, world, options);
          model(1.0 + world.rank()).backward();
          body(sharded, mean_x(ranks));
        });
      }
    }
  }
}

TEST(GlobalNorm, TwoIsTheRootOfAllSquares) {
  for_every_clipping([](ShardedModel& sharded, double x) {
    const double expected = std::sqrt(9 * x * x + 7 * 4 * x * x + 5 * 9 * x * x);
    EXPECT_EQ(sharded.grad_norm(), static_cast<float>(expected));
  });
}

TEST(GlobalNorm, InfinityIsTheLargest) {
  for_every_clipping([](ShardedModel& sharded, double x) {
    EXPECT_EQ(sharded.grad_norm(ShardedModel::Norm::infinity), 3 * x);
  });
}

TEST(GlobalNorm, ClipsEveryDtypeByOneFactor) {
  for_every_clipping([](ShardedModel& sharded, double x) {
    Sgd optimizer(sharded, {.lr = 1});
    const double norm = sharded.clip_grad_norm(0.5);
    const double factor = 0.5 / (norm + 1e-6);
    optimizer.step();
    for (const auto& piece : sharded.pieces()) {
      const double times = piece.name == "narrow" ? 1 : piece.name == "plain" ? 2 : 3;
      const auto expected = at::full_like(piece.master, 1 - factor * times * x, at::kDouble);
      const double tolerance = piece.name == "narrow" ? 1.0 / 128 : 1e-6;
      EXPECT_TRUE(at::allclose(piece.master.to(at::kDouble), expected, tolerance, tolerance))
          << piece.name;
    }
  });
}

// The gradients of its parameters are `x` times 1, 2 and 3, and lie in one buffer.
struct AlikeImpl : Unit {
  AlikeImpl()
      : first(register_parameter("first", at::ones({9}))),
        second(register_parameter("second", at::ones({70}))),
        third(register_parameter("third", at::ones({5}))) {}
  at::Tensor forward(double x) {
    return first.sum() * x + second.sum() * (2 * x) + third.sum() * (3 * x);
  }
  at::Tensor first, second, third;
};
FULLSHARD_UNIT(Alike);

// From the second step on the squares are taken while gradients are summed.
TEST(GlobalNorm, IsThatOfEveryTensorInEveryStep) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      run_ranks({ranks}, [&](const World& world) {
        Alike model;
        ShardOptions options;
        options.sharding.zero_stage = stage;
        auto sharded = shard(model, world, options);
        for (int step = 1; step <= 3; ++step) {
          model(step * (1.0 + world.rank())).backward();
          const double x = step * mean_x(ranks);
          const auto expected = static_cast<float>(std::sqrt((9 + 70 * 4 + 5 * 9) * x * x));
          EXPECT_EQ(sharded.grad_norm(), expected) << ranks << " ranks, stage " << stage;
          sharded.zero_grad();
        }
      });
    }
  }
}

// 2 and the largest are both not a number, wherever in the model one is.
TEST(GlobalNorm, IsNotANumberWhereOneGradientIs) {
  for (const int ranks : {1, 2, 3}) {
    for (const char* broken : {"narrow", "plain", "wide"}) {
      run_ranks({ranks}, [&](const World& world) {
        Mixed model;
        auto sharded = shard(model, world);
        model(1.0).backward();
        for (const auto& piece : sharded.pieces()) {
          if (piece.name == broken && piece.begin == 0) piece.gradient.narrow(0, 0, 1).fill_(NAN);
        }
        EXPECT_TRUE(std::isnan(sharded.grad_norm())) << broken;
        EXPECT_TRUE(std::isnan(sharded.grad_norm(ShardedModel::Norm::infinity))) << broken;
      });
    }
  }
}

// A step after one that was clipped moves by whole gradients: those of both backwards where the
// first ones were not dropped.
void expect_unclipped_after(bool steps, bool drops) {
  run_ranks({2}, [=](const World& world) {
    Alike model;
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.125});
    model(1.0).backward();
    sharded.clip_grad_norm(0.5);
    if (steps) optimizer.step();
    if (drops) optimizer.zero_grad();
    std::map<std::string, at::Tensor> before;
    for (const auto& piece : sharded.pieces()) before[piece.name] = piece.master.clone();
    model(1.0).backward();
    optimizer.step();
    for (const auto& piece : sharded.pieces()) {
      const double times = piece.name == "first" ? 1 : piece.name == "second" ? 2 : 3;
      const auto moved = at::full_like(piece.master, 0.125 * times * (drops ? 1 : 2));
      EXPECT_TRUE(at::allclose(before.at(piece.name) - piece.master, moved, 1e-6, 1e-6))
          << piece.name << ", steps " << steps << ", drops " << drops;
    }
  });
}

TEST(GlobalNorm, ClipsTheNextStepOnly) {
  expect_unclipped_after(/*steps=*/true, /*drops=*/true);
  expect_unclipped_after(/*steps=*/true, /*drops=*/false);
  expect_unclipped_after(/*steps=*/false, /*drops=*/true);
}

TEST(GlobalNorm, IsTakenInOneSmallMessage) {
  run_ranks({2}, [](const World& world) {
    Mixed model;
    auto sharded = shard(model, world);
    model(1.0).backward();
    const auto before = sharded.recorder().totals(Operation::all_gather);
    sharded.clip_grad_norm(1.0);
    const auto after = sharded.recorder().totals(Operation::all_gather);
    EXPECT_EQ(after.calls - before.calls, 1);
    EXPECT_EQ(after.bytes - before.bytes, 2 * 3 * 8);  // one fp64 per tensor and rank
  });
}

}  // namespace
}  // namespace fullshard
