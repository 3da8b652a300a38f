// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/self_backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"

namespace fullshard::comm {
namespace {

TEST(Self, GathersItsOwnShard) {
  const World world = World::single();
  const at::Tensor full = at::zeros({3}), shard = at::tensor({1.F, 2.F, 3.F});
  world.communicator().all_gather(full, shard).wait();
  EXPECT_TRUE(at::equal(full, shard));
  world.communicator().all_gather(full, full).wait();
  EXPECT_TRUE(at::equal(full, shard));
}

TEST(Self, ExchangesWithItself) {
  const auto received = at::zeros({3});
  World::single().communicator().all_to_all(received, at::tensor({1.F, 2.F, 3.F})).wait();
  EXPECT_TRUE(received.equal(at::tensor({1.F, 2.F, 3.F})));
}

TEST(Self, ReducesToItsOwnValueForEveryOp) {
  const World world = World::single();
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max, ReduceOp::min}) {
    const at::Tensor full = at::tensor({0.1F, -0.F}), shard = at::full({2}, 7.F);
    world.communicator().reduce_scatter(shard, full, {.op = op}).wait();
    EXPECT_TRUE(at::equal(shard.view(at::kInt), full.view(at::kInt)));
  }
}

TEST(Self, AccumulatesInTheWiderDtype) {
  const World world = World::single();
  const at::Tensor full = at::full({1}, 1.0F, at::kBFloat16);
  const at::Tensor shard = at::full({1}, 1024.5F);
  world.communicator().reduce_scatter(shard, full, {.accumulate = true}).wait();
  EXPECT_EQ(shard.item<float>(), 1025.5F);
}

TEST(Self, ConvertsToTheShardsDtype) {
  const World world = World::single();
  const at::Tensor shard = at::zeros({1}, at::kBFloat16);
  world.communicator().reduce_scatter(shard, at::full({1}, 1.001F)).wait();
  EXPECT_EQ(shard.item<float>(), 1.0F);
}

TEST(Self, HasOneRankOnOneHost) {
  const World world = World::single();
  EXPECT_EQ(world.backend(), "self");
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_EQ(world.num_hosts(), 1);
  EXPECT_EQ(world.split(5, "alone").size(), 1);
  world.communicator().broadcast(at::ones({2}), 0).wait();
  world.communicator().barrier();
  EXPECT_EQ(world.communicator().allocate(4, at::kHalf).sizes(), at::IntArrayRef({4}));
}

}  // namespace
}  // namespace fullshard::comm
