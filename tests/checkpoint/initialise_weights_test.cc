// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "fullshard/base/error.h"
#include "fullshard/checkpoint/model_io.h"
#include "tests/checkpoint/small_model.h"

namespace fullshard::testing {
namespace {

void make_normal(const std::string& name, at::Tensor& tensor, uint64_t seed) {
  if (name.ends_with("bias")) {
    tensor.zero_();
    return;
  }
  tensor.normal_(0.0, 0.02, at::detail::createCPUGenerator(seed));
}

Values initialised(const Way& way, uint64_t seed = 42) {
  Values values;
  run_ranks({.ranks = way.ranks}, [&](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world, way.options);
    initialise_weights(sharded, seed, make_normal);
    auto own = whole_values(model, sharded);
    own.erase("scale");  // a buffer, and not our business
    EXPECT_NO_THROW(model(small_batch(0, 0)));
    if (world.rank() == way.ranks - 1) values = std::move(own);
  });
  return values;
}

TEST(InitialiseWeights, TheSameBitsForEveryStrategyAndWorld) {
  const auto ways = all_ways();
  const auto expected = initialised(ways.front());
  EXPECT_GT(expected.at("block1.up.weight").abs().max().item<float>(), 0);
  for (const auto& way : ways) {
    SCOPED_TRACE(way.name);
    const auto actual = initialised(way);
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      EXPECT_TRUE(at::equal(actual.at(name), tensor)) << name;
    }
  }
}

TEST(InitialiseWeights, NarrowDtypesRoundTheSameNumbers) {
  const auto ways = all_ways();
  const auto expected = initialised(ways.front());
  for (const auto& [name, tensor] : initialised(in_bf16(ways.back()))) {
    if (name == "table" || name.starts_with("aside")) continue;
    EXPECT_TRUE(at::equal(tensor, expected.at(name).to(at::kBFloat16))) << name;
  }
}

TEST(InitialiseWeights, SeedsDependOnSeedAndNameOnlyAndNeverChange) {
  EXPECT_EQ(seed_of_tensor(42, "block0.up.weight"), seed_of_tensor(42, "block0.up.weight"));
  std::set<uint64_t> seeds;
  for (const uint64_t seed : {0, 1, 42}) {
    for (const char* name : {"", "a", "b", "block0.up.weight", "block1.up.weight"}) {
      seeds.insert(seed_of_tensor(seed, name));
    }
  }
  EXPECT_EQ(seeds.size(), 15);
  EXPECT_EQ(seed_of_tensor(0, ""), 0xc3817c016ba4ff30);
  EXPECT_EQ(seed_of_tensor(42, "block0.up.weight"), 0xef8b38333a008bf2);
}

TEST(InitialiseWeights, MakesOnlyTensorsOfWhichTheRankHoldsSomething) {
  run_ranks({.ranks = 3}, [](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    std::set<std::string> made, owned;
    initialise_weights(sharded, 1, [&](const std::string& name, at::Tensor& tensor, uint64_t) {
      EXPECT_TRUE(made.insert(name).second);
      EXPECT_EQ(tensor.scalar_type(), at::kFloat);
      tensor.zero_();
    });
    for (const auto& piece : sharded.pieces()) owned.insert(piece.name);
    std::erase_if(made, [](const std::string& name) { return name.ends_with("gate"); });  // frozen
    EXPECT_EQ(made, owned);
  });
}

TEST(InitialiseWeights, WhatFailsOnOneRankFailsOnAll) {
  run_ranks({.ranks = 2}, [](const World& world) {
    auto model = deferred<SmallModel>();
    auto sharded = shard(model, world);
    try {
      initialise_weights(sharded, 1, [&](const std::string& name, at::Tensor&, uint64_t) {
        if (world.rank() == 1) fail("no values for '{}'", name);
      });
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::StartsWith("rank 1: no values for '"));
    }
  });
}

// Ranks 2 and 3 hold what 0 and 1 do, and rank 3 draws other numbers for one tensor of
// its shard.
TEST(InitialiseWeights, ReplicasThatDrawDifferentNumbersAreTold) {
  for (const bool differs : {false, true}) {
    run_ranks({.ranks = 4}, [&](const World& world) {
      ShardOptions options;
      options.sharding.strategy = Strategy::hybrid_shard;
      options.sharding.sharding_factor = 2;
      auto model = deferred<SmallModel>();
      auto sharded = shard(model, world, options);
      std::string told = "nothing";
      try {
        initialise_weights(sharded, 1, [&](const std::string& name, at::Tensor& tensor, uint64_t) {
          tensor.fill_(differs && world.rank() == 3 && name == "block1.down.weight" ? 2 : 1);
        });
      } catch (const Error& error) {
        told = error.what();
      }
      EXPECT_EQ(told,
                differs ? "initialise_weights: parameter 'block1.down.weight' has other values on "
                          "rank 3 than on rank 1; ranks that hold the same shard must read the "
                          "same files, and draw from the same seed"
                        : "nothing");
    });
  }
}

}  // namespace
}  // namespace fullshard::testing
