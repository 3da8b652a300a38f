// SPDX-License-Identifier: Apache-2.0
// Buffers that forwards change are the same on all ranks after every step.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/engine/sharded_model.h"
#include "fullshard/engine/storage/agreement.h"
#include "fullshard/engine/storage/value_hash.h"
#include "fullshard/nn/unit.h"
#include "fullshard/optim/sgd.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

constexpr int64_t kFeatures = 5;
constexpr int kSteps = 4;

struct NormedImpl : Unit {
  NormedImpl() {
    linear = register_module("linear", torch::nn::Linear(kFeatures, kFeatures));
    norm = register_module("norm", torch::nn::BatchNorm1d(kFeatures));
    at::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(3);
    linear->weight.normal_(0, 1, generator);
    linear->bias.zero_();
  }
  at::Tensor forward(at::Tensor x, bool with_norm = true) {
    x = linear(x);
    return with_norm ? norm(x) : x;
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
FULLSHARD_UNIT(Normed);

at::Tensor batch_of(int step, int rank) {
  auto generator = at::detail::createCPUGenerator(100 + 10 * step + rank);
  return at::randn({7, kFeatures}, generator) + rank;
}

// Whether every rank's buffers have the same bits.
bool buffers_agree(const World& world, torch::nn::Module& module) {
  std::vector<uint64_t> hashes;
  for (const auto& buffer : module.buffers()) hashes.push_back(engine::hash_values(buffer));
  const auto own = std::to_string(engine::hash_numbers(hashes));
  for (const auto& other : engine::gather_texts(world.communicator(), own, "hashes")) {
    if (other != own) return false;
  }
  return true;
}

void train_normed(Normed& model, Sgd& optimizer, const World& world, int step,
                  bool with_norm = true) {
  model(batch_of(step, world.rank()), with_norm).pow(2).sum().backward();
  optimizer.step();
  optimizer.zero_grad();
}

// What DDP's rank 0 has: a plain module that only ever saw rank 0's batches. The learning rate is
// zero, so that its weights are those of the sharded one.
Normed after_rank_0s_batches() {
  Normed plain;
  for (int step = 0; step < kSteps; ++step) plain(batch_of(step, 0));
  return plain;
}

TEST(BufferBroadcast, GivesAllRanksTheStatisticsOfRank0AtEveryStep) {
  const auto expected = after_rank_0s_batches()->named_buffers();
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 2, 3}) {
      for (const std::string backend : {"shm", "gloo"}) {
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, {}", ranks, stage, backend));
        run_ranks({.ranks = ranks, .backend = backend}, [&](const World& world) {
          ShardOptions options;
          options.sharding.zero_stage = stage;
          Normed model;
          auto sharded = shard(model, world, options);
          Sgd optimizer(sharded, {.lr = 0.0});
          for (int step = 0; step < kSteps; ++step) {
            train_normed(model, optimizer, world, step);
            EXPECT_TRUE(buffers_agree(world, *model)) << "step " << step;
          }
          for (const auto& item : model->named_buffers()) {
            EXPECT_TRUE(at::equal(item.value(), expected[item.key()])) << item.key();
          }
          EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), kSteps);
        });
      }
    }
  }
}

TEST(BufferBroadcast, EvaluationsOfAllRanksAgreeAfterAStep) {
  run_ranks({.ranks = 3}, [](const World& world) {
    Normed model;
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.1});
    for (int step = 0; step < kSteps; ++step) train_normed(model, optimizer, world, step);
    model->eval();
    at::NoGradGuard no_grad;
    const auto output = model(batch_of(99, 0));
    const auto own = std::to_string(engine::hash_values(output));
    for (const auto& other : engine::gather_texts(world.communicator(), own, "outputs")) {
      EXPECT_EQ(other, own);
    }
  });
}

TEST(BufferBroadcast, SwitchedOffEveryRankKeepsItsOwn) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ShardOptions options;
    options.broadcast_buffers = false;
    Normed model;
    auto sharded = shard(model, world, options);
    Sgd optimizer(sharded, {.lr = 0.0});
    train_normed(model, optimizer, world, 0);
    Normed own;
    own(batch_of(0, world.rank()));
    EXPECT_TRUE(at::equal(model->norm->running_mean, own->norm->running_mean));
    EXPECT_FALSE(buffers_agree(world, *model));
  });
}

TEST(BufferBroadcast, ARankThatLeavesTheNormOutHangsNobody) {
  run_ranks({.ranks = 3}, [](const World& world) {
    Normed model;
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.0});
    train_normed(model, optimizer, world, 0, /*with_norm=*/world.rank() == 1);
    EXPECT_TRUE(at::equal(model->norm->running_mean, at::zeros({kFeatures})));
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 0);
    train_normed(model, optimizer, world, 1, /*with_norm=*/world.rank() == 0);
    EXPECT_EQ(model->norm->num_batches_tracked.item<int64_t>(), 1);
    EXPECT_TRUE(buffers_agree(world, *model));
  });
}

TEST(BufferBroadcast, ASkippedStepMakesThemAgreeToo) {
  run_ranks({.ranks = 2}, [](const World& world) {
    Normed model;
    auto sharded = shard(model, world);
    model(batch_of(0, world.rank())).sum().backward();
    EXPECT_FALSE(buffers_agree(world, *model));
    sharded.skip_step();
    EXPECT_TRUE(buffers_agree(world, *model));
  });
}

// Statistics without a counter of batches: torch's kernel writes them unseen by version counters.
struct BareNormImpl : Unit {
  BareNormImpl() {
    weight = register_parameter("weight", at::ones({kFeatures}));
    mean = register_buffer("mean", at::zeros({kFeatures}));
    variance = register_buffer("variance", at::ones({kFeatures}));
  }
  at::Tensor forward(at::Tensor x) {
    return at::batch_norm(x, weight, {}, mean, variance, true, 0.1, 1e-5, false);
  }
  at::Tensor weight, mean, variance;
};
FULLSHARD_UNIT(BareNorm);

TEST(BufferBroadcast, SeesWhatTorchDoesNotCount) {
  run_ranks({.ranks = 2}, [](const World& world) {
    BareNorm model;
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.0});
    model(batch_of(0, world.rank())).pow(2).sum().backward();
    optimizer.step();
    EXPECT_TRUE(buffers_agree(world, *model));
    EXPECT_FALSE(at::equal(model->mean, at::zeros({kFeatures})));
  });
}

struct TablesImpl : Unit {
  explicit TablesImpl(int64_t length) {
    weight = register_parameter("weight", at::ones({3}));
    table = register_buffer("table", at::arange(length).to(at::kFloat));
  }
  at::Tensor forward(at::Tensor x, bool writes) {
    if (writes) table.add_(1);
    return x * weight;
  }
  at::Tensor weight, table;
};
FULLSHARD_UNIT(Tables);

TEST(BufferBroadcast, SendsALargeTableOnlyWhenARankHasChangedIt) {
  static constexpr int64_t kLength = 100'000;
  run_ranks({.ranks = 2}, [](const World& world) {
    Tables model(kLength);
    auto sharded = shard(model, world);
    Sgd optimizer(sharded, {.lr = 0.0});
    const auto step = [&](bool writes) {
      model(at::ones({3}), writes).sum().backward();
      world.recorder().reset_totals();
      optimizer.step();
      optimizer.zero_grad();
      return world.recorder().totals(Operation::broadcast).bytes;
    };
    EXPECT_EQ(step(false), 0);
    EXPECT_EQ(step(world.rank() == 1), 4 * kLength);
    EXPECT_EQ(model->table[7].item<float>(), 7);  // rank 0's
    EXPECT_EQ(step(true), 4 * kLength);
    EXPECT_EQ(model->table[7].item<float>(), 8);
    EXPECT_EQ(step(false), 0);
  });
}

TEST(BufferBroadcast, LeavesIgnoredModulesAlone) {
  run_ranks({.ranks = 2}, [](const World& world) {
    ShardOptions options;
    options.ignored_modules = "norm";
    Normed model;
    auto sharded = shard(model, world, options);
    Sgd optimizer(sharded, {.lr = 0.0});
    train_normed(model, optimizer, world, 0);
    EXPECT_FALSE(buffers_agree(world, *model));
  });
}

}  // namespace
}  // namespace fullshard::testing
