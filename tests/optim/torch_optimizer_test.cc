// SPDX-License-Identifier: Apache-2.0
// A user's torch optimizer over the pieces of a model that computes in 16 bits.
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include <mutex>

#include "fullshard/base/error.h"
#include "fullshard/optim/torch/torch_optimizer.h"
#include "tests/errors.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

constexpr int kTorchSteps = 4;
constexpr double kClip = 0.5;

// Whole fp32 parameters stepped by torch alone, with the mean gradients clipped.
Values stepped_by_torch(int ranks, const torch::optim::RMSpropOptions& options) {
  auto model = make_fixed();
  torch::optim::RMSprop optimizer(model->parameters(), options);
  for (int step = 0; step < kTorchSteps; ++step) {
    const auto gradients = mean_gradients(step, ranks);
    const double factor = clip_factor(gradients, kClip);
    for (auto& item : model->named_parameters()) {
      item.value().mutable_grad() = gradients.at(item.key()) * factor;
    }
    optimizer.step();
  }
  Values values;
  for (auto& item : model->named_parameters()) values[item.key()] = item.value().detach();
  return values;
}

TEST(PieceParameters, StepInTheMastersPrecisionWithScaledGradients) {
  const auto options = torch::optim::RMSpropOptions(1e-2).momentum(0.9);
  for (const int ranks : {1, 2, 3}) {
    const auto expected = stepped_by_torch(ranks, options);
    for (const auto compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
      for (const int stage : {0, 1, 3}) {
        run_ranks({.ranks = ranks}, [&](const World& world) {
          auto model = make_fixed();
          ShardOptions shard_options;
          shard_options.sharding.zero_stage = stage;
          shard_options.param_dtype = compute;
          auto sharded = shard(model, world, shard_options);
          PieceParameters pieces(sharded);
          torch::optim::RMSprop optimizer(pieces.tensors(), options);
          for (int step = 0; step < kTorchSteps; ++step) {
            model(fixed_gradients(step, world.rank()).to(compute)).backward();
            sharded.clip_grad_norm(kClip);
            pieces.step(optimizer);
            pieces.zero_grad();
          }
          auto full = sharded.gather_full();
          for (const auto& piece : sharded.pieces()) {
            const auto whole = expected.at(piece.name).view({-1});
            const auto part = whole.narrow(0, piece.begin, piece.numel());
            EXPECT_TRUE(at::allclose(piece.master, part, 1e-6, 1e-7)) << piece.name;
            const auto seen = model->named_parameters()[piece.name].detach().view({-1});
            EXPECT_TRUE(
                at::equal(seen.narrow(0, piece.begin, piece.numel()), piece.master.to(compute)));
          }
          EXPECT_EQ(pieces.names().size(), pieces.tensors().size());
        });
      }
    }
  }
}

TEST(PieceParameters, StepAsIfTheLossHadNotBeenScaled) {
  const auto stepped = [](double loss_scale) {
    auto model = make_fixed();
    auto sharded = shard(model, World::single());
    PieceParameters pieces(sharded);
    torch::optim::RMSprop optimizer(pieces.tensors(), torch::optim::RMSpropOptions(1e-2).eps(0.1));
    sharded.set_loss_scale(loss_scale);
    (model(fixed_gradients(0, 0)) * loss_scale).backward();
    sharded.clip_grad_norm(kClip);
    pieces.step(optimizer);
    return sharded.pieces()[0].master.clone();
  };
  EXPECT_TRUE(at::allclose(stepped(8), stepped(1), 1e-6, 1e-7));
}

TEST(PieceParameters, RefuseAnOptimizerThatWantsAClosure) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  PieceParameters pieces(sharded);
  torch::optim::LBFGS optimizer(pieces.tensors());
  EXPECT_THAT([&] { pieces.step(optimizer); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("LBFGS cannot step over")));
}

TEST(PieceParameters, LetsOnlyAnAllowedOptimizerStep) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  const auto message_with = [&](const ForeignOptimizerRules& rules) {
    PieceParameters pieces(sharded, rules);
    torch::optim::RMSprop optimizer(pieces.tensors());
    model(fixed_gradients(0, 0)).backward();
    return message_of([&] { pieces.step(optimizer); });
  };
  EXPECT_THAT(message_with({.stage = 2}), ::testing::HasSubstr("zero_allow_untested_optimizer"));
  EXPECT_EQ(message_with({.zero_allow_untested_optimizer = true, .stage = 2}), "no error");
}

}  // namespace
}  // namespace fullshard::testing
