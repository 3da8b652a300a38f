// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/link_warm_up.h"

#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard::engine {
namespace {

struct WideImpl : Unit {
  explicit WideImpl(int64_t width) {
    linear = register_module("linear",
                             torch::nn::Linear(torch::nn::LinearOptions(width, 128).bias(false)));
  }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(Wide);

struct TwoWidthsImpl : Unit {
  TwoWidthsImpl() {
    narrow = register_module("narrow", Wide(128));
    wide = register_module("wide", Wide(512));
  }
  at::Tensor forward(at::Tensor x) { return narrow(x); }
  Wide narrow{nullptr}, wide{nullptr};
};
FULLSHARD_UNIT(TwoWidths);

constexpr int64_t kNumel = 512 * 128;  // of the wide unit; no padding

TEST(LinkWarmUp, SendsWhatTheLargestUnitSends) {
  TwoWidths model;
  const auto sharded = shard(model, World::fake(4), {.param_dtype = at::kBFloat16});
  const auto largest = largest_messages(EngineAccess::of(sharded));
  EXPECT_EQ(largest.gathered, kNumel * 2);
  EXPECT_EQ(largest.reduced, kNumel * 2);
}

TEST(LinkWarmUp, KeepsToTheSizesOfBuckets) {
  TwoWidths model;
  ShardOptions options;
  options.traffic.allgather_bucket_size = 1000;
  options.traffic.reduce_bucket_size = 2000;
  const auto sharded = shard(model, World::fake(4), options);
  const auto largest = largest_messages(EngineAccess::of(sharded));
  EXPECT_EQ(largest.gathered, 1000 * 4);
  EXPECT_EQ(largest.reduced, 2000 * 4);
}

TEST(LinkWarmUp, KnowsTheSumsBetweenHosts) {
  TwoWidths model;
  ShardOptions options{.param_dtype = at::kBFloat16};
  options.sharding.strategy = Strategy::hybrid_shard;
  const auto sharded = shard(model, World::fake(4, 0, 2), options);
  const auto largest = largest_messages(EngineAccess::of(sharded));
  EXPECT_EQ(largest.reduced, kNumel * 2);
  EXPECT_EQ(largest.summed, kNumel / 2 * 4);
  TwoWidths other;
  EXPECT_EQ(largest_messages(EngineAccess::of(shard(other, World::fake(4, 0, 2)))).summed, 0);
}

// Nothing to warm up: the groups of host tensors have their memory from the start.
TEST(LinkWarmUp, MakesNoCallsWithoutGpus) {
  TwoWidths model;
  const World world = World::fake(4);
  const auto sharded = shard(model, world);
  const auto before = world.recorder().records().size();
  warm_up_links(EngineAccess::of(sharded));
  EXPECT_EQ(world.recorder().records().size(), before);
}

}  // namespace
}  // namespace fullshard::engine
