// SPDX-License-Identifier: Apache-2.0
// LAMB's trust ratios are those of whole tensors, wherever ranks cut them.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "fullshard/optim/lamb.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

constexpr int kLambSteps = 4;
const LambOptions kOptions{.lr = 1e-2, .weight_decay = 0.1};

// The ratios of the last step, every rank's.
std::vector<std::vector<float>> ratios_after_training(int ranks, const ShardOptions& options) {
  std::vector<std::vector<float>> ratios(ranks);
  run_ranks({.ranks = ranks}, [&](const World& world) {
    auto model = make_fixed();
    auto sharded = shard(model, world, options);
    Lamb lamb(sharded, kOptions);
    for (int step = 0; step < kLambSteps; ++step) {
      model(fixed_gradients(step, world.rank())).backward();
      lamb.step();
      lamb.zero_grad();
    }
    ratios[world.rank()] = lamb.trust_ratios();
  });
  return ratios;
}

std::vector<double> naive_ratios(int ranks) {
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> moments;
  std::map<std::string, double> ratios;
  FixedRun run{.ranks = ranks, .steps = kLambSteps, .clip = 0};
  train_naively(run,
                [&](const std::string& name, const at::Tensor& p, const at::Tensor& g,
                    int step) -> at::Tensor {
                  if (step == 1) moments[name] = {at::zeros_like(p), at::zeros_like(p)};
                  auto& [m, v] = moments[name];
                  m = m * kOptions.beta1 + g * (1 - kOptions.beta1);
                  v = v * kOptions.beta2 + g * g * (1 - kOptions.beta2);
                  const auto direction =
                      m / (v.sqrt() + kOptions.epsilon) + p * kOptions.weight_decay;
                  ratios[name] = std::clamp((p.norm() / direction.norm()).item<double>(),
                                            kOptions.min_coeff, kOptions.max_coeff);
                  const double correction = std::sqrt(1 - std::pow(kOptions.beta2, step)) /
                                            (1 - std::pow(kOptions.beta1, step));
                  return p - kOptions.lr * correction * ratios[name] * direction;
                });
  std::vector<double> in_order;
  for (const auto& item : make_fixed()->named_parameters()) {
    in_order.push_back(ratios.at(item.key()));
  }
  return in_order;
}

TEST(Lamb, HasTheRatiosOfWholeTensorsUnderEveryStrategy) {
  for (const int ranks : {1, 2, 3, 4}) {
    const auto naive = naive_ratios(ranks);
    std::optional<std::vector<float>> first;
    for (const auto strategy : {Strategy::no_shard, Strategy::shard_grad_op, Strategy::full_shard,
                                Strategy::hybrid_shard}) {
      ShardOptions options;
      options.sharding.strategy = strategy;
      if (strategy == Strategy::hybrid_shard) {
        if (ranks != 4) continue;
        options.sharding.sharding_factor = 2;
      }
      for (const auto& ratios : ratios_after_training(ranks, options)) {
        if (!first) first = ratios;
        EXPECT_EQ(ratios, *first) << name_of(strategy) << ", " << ranks << " ranks";
        for (size_t i = 0; i < naive.size(); ++i) EXPECT_NEAR(ratios[i], naive[i], 1e-6 * naive[i]);
      }
    }
  }
}

TEST(Lamb, ReadsNormsInOneSmallGather) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = make_fixed();
    auto sharded = shard(model, world);
    Lamb lamb(sharded, kOptions);
    model(fixed_gradients(0, world.rank())).backward();
    const auto before = sharded.recorder().moved();
    lamb.step();
    // Two fp64 sums for each of five tensors go to the other rank.
    EXPECT_EQ(sharded.recorder().moved() - before, 2 * 5 * 8);
  });
}

// A power of two scales gradients exactly, so that nothing may differ.
TEST(Lamb, DoesNotSeeTheLossScale) {
  const auto masters_after = [](double scale) {
    auto model = make_fixed();
    auto sharded = shard(model, World::single());
    sharded.set_loss_scale(scale);
    Lamb lamb(sharded, kOptions);
    for (int step = 0; step < kLambSteps; ++step) {
      (model(fixed_gradients(step, 0)) * scale).backward();
      lamb.step();
      lamb.zero_grad();
    }
    Values masters;
    for (const auto& piece : sharded.pieces()) masters[piece.name] = piece.master.clone();
    return masters;
  };
  expect_same_bits(masters_after(1024), masters_after(1), "loss scale 1024");
}

TEST(Lamb, DoesNotScaleATensorOfZeros) {
  auto model = make_fixed();
  {
    at::NoGradGuard no_grad;
    model->part->bias.zero_();
  }
  auto sharded = shard(model, World::single());
  Lamb lamb(sharded, kOptions);
  model(fixed_gradients(0, 0)).backward();
  lamb.step();
  EXPECT_EQ(lamb.trust_ratios()[2], 1.0f);
}

}  // namespace
}  // namespace fullshard::testing
