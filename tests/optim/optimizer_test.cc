// SPDX-License-Identifier: Apache-2.0
// Optimizers over pieces against torch's own over whole parameters.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "fullshard/base/error.h"
#include "fullshard/base/float_halves.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/kernels/adamw_kernels.h"
#include "fullshard/optim/sgd.h"
#include "fullshard/optim/torch/torch_optimizer.h"

namespace fullshard::optim {
namespace {

struct NetImpl : Unit {
  NetImpl() {
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
  }
  at::Tensor forward(at::Tensor x) { return second(first(x).relu()); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};
FULLSHARD_UNIT(Net);

Net make_net() {
  Net net;
  at::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(3);
  for (auto& parameter : net->parameters()) parameter.normal_(0.0, 0.5, generator);
  return net;
}

at::Tensor loss_of(Net& net, int step) {
  auto generator = at::detail::createCPUGenerator(50 + step);
  return net(at::randn({4, 5}, generator)).pow(2).mean();
}

constexpr int kSteps = 6;

// Whole parameters after training with a torch optimizer, without the engine.
template <class TorchOptimizer, class Options>
std::vector<at::Tensor> train_with_torch(const Options& options) {
  auto net = make_net();
  TorchOptimizer optimizer(net->parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    loss_of(net, step).backward();
    optimizer.step();
    optimizer.zero_grad();
  }
  return net->parameters();
}

// The same over pieces on two ranks that see the same data; `make` gives a function that steps.
template <class Make>
void expect_equal_training(const std::vector<at::Tensor>& expected, const Make& make) {
  for (const int stage : {0, 2, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto net = make_net();
      ShardOptions options;
      options.sharding.zero_stage = stage;
      auto sharded = shard(net, world, options);
      auto step_once = make(sharded);
      for (int step = 0; step < kSteps; ++step) {
        loss_of(net, step).backward();
        step_once();
        sharded.zero_grad();
      }
      auto full = sharded.gather_full();
      const auto actual = net->parameters();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-5, 1e-6)) << "stage " << stage;
      }
    });
  }
}

TEST(AdamW, EqualsTorchs) {
  const auto expected = train_with_torch<torch::optim::AdamW>(
      torch::optim::AdamWOptions(0.01).betas({0.8, 0.95}).eps(1e-7).weight_decay(0.1));
  expect_equal_training(expected, [](ShardedModel& sharded) {
    auto optimizer = std::make_shared<AdamW>(
        sharded,
        AdamWOptions{
            .lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-7, .weight_decay = 0.1});
    return [optimizer] { optimizer->step(); };
  });
}

TEST(Sgd, EqualsTorchsWithMomentum) {
  const auto expected = train_with_torch<torch::optim::SGD>(
      torch::optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
  expect_equal_training(expected, [](ShardedModel& sharded) {
    auto optimizer = std::make_shared<Sgd>(
        sharded, SgdOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01});
    return [optimizer] { optimizer->step(); };
  });
}

TEST(PieceParameters, LetAnyTorchOptimizerStep) {
  const auto options = torch::optim::AdamWOptions(0.01).weight_decay(0.1);
  const auto expected = train_with_torch<torch::optim::AdamW>(options);
  expect_equal_training(expected, [&](ShardedModel& sharded) {
    auto pieces = std::make_shared<PieceParameters>(sharded);
    auto optimizer = std::make_shared<torch::optim::AdamW>(pieces->tensors(), options);
    return [=] { pieces->step(*optimizer); };
  });
}

// What a step on the host does beside a GPU, whose masters are in halves.
TEST(AdamWKernel, GivesMastersInHalvesTheBitsOfWholeOnes) {
  constexpr int64_t kNumel = 5 * 1024 + 37;
  at::manual_seed(3);
  const auto whole = at::randn({kNumel});
  const auto gradient = at::randn({kNumel}).to(at::kBFloat16);
  auto moments = at::rand({2, kNumel});
  auto moments_of_halves = moments.clone();
  std::vector<uint16_t> nearest, lower;
  for (int64_t i = 0; i < kNumel; ++i) {
    const auto halves = base::halves_of(whole.data_ptr<float>()[i]);
    nearest.push_back(halves.nearest);
    lower.push_back(halves.lower);
  }
  optim::AdamWStep step;
  step.step_size = 1e-2;
  step.decay = 0.999;
  step.clip = 0.7;
  optim::PieceElements piece;
  piece.numel = kNumel;
  piece.gradient = {gradient.data_ptr(), at::kBFloat16};
  piece.master = {whole.data_ptr(), at::kFloat};
  for (const int i : {0, 1}) piece.states[i] = {moments[i].data_ptr(), at::kFloat};
  optim::adamw_step(step, piece);

  piece.master = {};
  piece.shown = {nearest.data(), at::kBFloat16};
  piece.lower = lower.data();
  for (const int i : {0, 1}) piece.states[i] = {moments_of_halves[i].data_ptr(), at::kFloat};
  optim::adamw_step(step, piece);
  EXPECT_TRUE(at::equal(moments, moments_of_halves));
  for (int64_t i = 0; i < kNumel; ++i) {
    ASSERT_EQ(base::joined({nearest[i], lower[i]}), whole.data_ptr<float>()[i]) << "element " << i;
  }
}

TEST(AdamWKernel, GivesTheSameBitsForEveryCut) {
  auto generator = at::detail::createCPUGenerator(1);
  const auto gradient = at::randn({1001}, generator);
  const AdamWStep step{.clip = 0.7f,
                       .beta1 = 0.9f,
                       .beta2 = 0.99f,
                       .decay = 0.999f,
                       .step_size = 0.01f,
                       .root_correction = 0.1f,
                       .epsilon = 1e-8f};
  const auto run = [&](const std::vector<int64_t>& cuts) {
    auto parameters = at::randn({1001}, at::detail::createCPUGenerator(2));
    auto moments = at::zeros({1001}), variances = at::zeros({1001});
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      adamw_step(step, parameters.data_ptr<float>() + begin, gradient.data_ptr<float>() + begin,
                 moments.data_ptr<float>() + begin, variances.data_ptr<float>() + begin,
                 end - begin);
      begin = end;
    }
    return parameters;
  };
  const auto whole = run({1001});
  EXPECT_TRUE(at::equal(run({1, 17, 500, 999, 1001}), whole));
}

TEST(AdamW, RefusesValuesOutOfRangeByName) {
  auto net = make_net();
  auto sharded = shard(net, World::single());
  try {
    AdamW optimizer(sharded, {.beta1 = 1.5});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "AdamW: beta1 is 1.5, expected 0 <= beta1 < 1");
  }
}

TEST(Clipping, ScalesAllGradientsToTheGlobalNorm) {
  for (const int stage : {0, 1, 3}) {
    run_ranks({.ranks = 2}, [&](const World& world) {
      auto plain = make_net();
      (loss_of(plain, 0) * 100).backward();
      double expected = 0, largest = 0;
      for (const auto& parameter : plain->parameters()) {
        expected += parameter.grad().to(at::kDouble).pow(2).sum().item<double>();
        largest = std::max(largest, parameter.grad().abs().max().item<double>());
      }
      expected = std::sqrt(expected);

      auto net = make_net();
      ShardOptions options;
      options.sharding.zero_stage = stage;
      auto sharded = shard(net, world, options);
      Sgd optimizer(sharded, {.lr = 1.0});
      (loss_of(net, 0) * 100).backward();
      EXPECT_NEAR(sharded.grad_norm(ShardedModel::Norm::infinity), largest, 1e-5 * largest);
      EXPECT_NEAR(sharded.clip_grad_norm(0.5), expected, 1e-5 * expected);
      optimizer.step();
      auto full = sharded.gather_full();
      double moved = 0;
      const auto before = make_net()->parameters();
      for (size_t i = 0; i < before.size(); ++i) {
        moved += (net->parameters()[i] - before[i]).to(at::kDouble).pow(2).sum().item<double>();
      }
      EXPECT_NEAR(std::sqrt(moved), 0.5, 1e-4);
    });
  }
}

}  // namespace
}  // namespace fullshard::optim
