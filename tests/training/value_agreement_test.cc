// SPDX-License-Identifier: Apache-2.0
// Ranks that start from different values are told so, by the name of the first tensor.
#include "fullshard/engine/value_agreement.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "fullshard/engine/sharded_model.h"
#include "tests/errors.h"
#include "tests/training/tiny_training.h"

namespace fullshard::testing {
namespace {

constexpr const char* kRemedy =
    "; build the same values on every rank (torch::manual_seed with the same number before the "
    "model is made), or leave ShardOptions::sync_module_states true to take rank 0's";

const ShardOptions kOwnValues = {.sync_module_states = false};

std::vector<ShardOptions> replicated_and_sharded(int ranks) {
  std::vector<ShardOptions> ways(3, kOwnValues);
  ways[0].sharding.zero_stage = 0;
  ways[1].sharding.zero_stage = 3;
  ways[2].sharding.strategy = Strategy::hybrid_shard;
  ways[2].sharding.sharding_factor = ranks == 3 ? 1 : 2;
  return ways;
}

TEST(ValueAgreement, NamesTheFirstParameterThatDiffersAndTheRanks) {
  for (const int ranks : {2, 3, 4}) {
    for (const auto& options : replicated_and_sharded(ranks)) {
      run_ranks({.ranks = ranks}, [&](const World& world) {
        auto model = make_model({});
        const int last = world.size() - 1;
        if (world.rank() == last) {
          at::NoGradGuard no_grad;
          auto bias = model->blocks[1]->up->bias;
          bias[3] = std::nextafter(bias[3].item<float>(), 9.0f);
          model->blocks[2]->up->bias.zero_();  // comes later
        }
        EXPECT_EQ(message_of([&] { shard(model, world, options); }),
                  fmt::format("shard: parameter 'block1.up.bias' has other values on rank {} than "
                              "on rank 0{}",
                              last, kRemedy));
      });
    }
  }
}

TEST(ValueAgreement, ListsAllRanksThatDiffer) {
  run_ranks({.ranks = 3}, [](const World& world) {
    TrainingOptions training;
    training.seed = world.rank() == 0 ? 7 : 8;
    auto model = make_model(training);
    EXPECT_EQ(message_of([&] { shard(model, world, kOwnValues); }),
              fmt::format("shard: parameter 'embedding.weight' has other values on ranks 1, 2 than "
                          "on rank 0{}",
                          kRemedy));
  });
}

struct CountingImpl : Unit {
  CountingImpl() {
    weight = register_parameter("weight", at::ones({5}));
    count = register_buffer("count", at::ones({3}));
  }
  at::Tensor forward(at::Tensor x) { return x * weight; }
  at::Tensor weight, count;
};
FULLSHARD_UNIT(Counting);

TEST(ValueAgreement, LooksAtBuffersToo) {
  run_ranks({.ranks = 2}, [](const World& world) {
    Counting model;
    model->count[2] = world.rank();
    EXPECT_EQ(
        message_of([&] { shard(model, world, kOwnValues); }),
        fmt::format("shard: buffer 'count' has other values on rank 1 than on rank 0{}", kRemedy));
  });
}

TEST(ValueAgreement, BuffersOfOtherShapesAreOtherModels) {
  run_ranks({.ranks = 2}, [](const World& world) {
    Counting model;
    if (world.rank() == 1) model->register_buffer("more", at::ones({2}));
    EXPECT_EQ(message_of([&] { shard(model, world, kOwnValues); }),
              "shard: ranks hold different models: rank 0 has nothing more, rank 1 has buffer more "
              "[2] Float in the root unit; build the same model on every rank");
  });
}

TEST(ValueAgreement, NotANumberAgreesWithItself) {
  run_ranks({.ranks = 2}, [](const World& world) {
    Counting model;
    {
      at::NoGradGuard no_grad;
      model->weight.fill_(std::numeric_limits<float>::quiet_NaN());
    }
    EXPECT_NO_THROW(shard(model, world, kOwnValues));
  });
}

TEST(ValueAgreement, IsNotAskedForWhereRank0sValuesAreTaken) {
  run_ranks({.ranks = 3}, [](const World& world) {
    TrainingOptions training;
    training.seed = 7 + static_cast<uint64_t>(world.rank());
    auto model = make_model(training);
    ShardOptions options;
    options.sharding.zero_stage = 0;
    EXPECT_NO_THROW(shard(model, world, options));
  });
}

TEST(ValueAgreement, RanksThatDrewOtherNumbersStartFromThoseOfRank0) {
  for (const int ranks : {2, 3}) {
    run_ranks({.ranks = ranks}, [](const World& world) {
      TrainingOptions training;
      const auto first = make_model(training);
      training.seed += static_cast<uint64_t>(world.rank());
      auto model = make_model(training);
      auto sharded = shard(model, world);
      const auto full = sharded.gather_full();
      const auto expected = first->parameters(), found = model->parameters();
      for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i]));
    });
  }
}

// One number per rank where all is well.
TEST(ValueAgreement, CostsOneSmallMessage) {
  run_ranks({.ranks = 2}, [](const World& world) {
    const auto& everyone = world.communicator();
    world.recorder().reset_totals();
    engine::check_hashes_agree(everyone, {{"a", 1}, {"b", 2}}, {0, 0}, "what", "remedy");
    const auto totals = world.recorder().totals(Operation::all_gather);
    EXPECT_EQ(totals.calls, 1);
    EXPECT_EQ(totals.bytes, 16);
  });
}

// Four ranks, two shards: ranks 1 and 3 hold the same one.
TEST(ValueAgreement, ComparesOnlyRanksThatHoldTheSame) {
  const std::vector<int> shards_of_ranks = {0, 1, 0, 1};
  run_ranks({.ranks = 4}, [&](const World& world) {
    const auto& everyone = world.communicator();
    const auto shard = static_cast<uint64_t>(world.rank() % 2);
    EXPECT_NO_THROW(engine::check_hashes_agree(everyone, {{"a", shard}}, shards_of_ranks, "load",
                                               "read again"));
    const uint64_t other = world.rank() == 3 ? 9 : shard;
    EXPECT_EQ(message_of([&] {
                engine::check_hashes_agree(everyone, {{"a", 0}, {"b", other}}, shards_of_ranks,
                                           "load", "read again");
              }),
              "load: b has other values on rank 3 than on rank 1; read again");
  });
}

}  // namespace
}  // namespace fullshard::testing
