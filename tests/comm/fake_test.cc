// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/fake_backend.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "expect_error.h"
#include "fullshard/comm/world/mesh.h"

namespace fullshard::comm {
namespace {

TEST(Fake, PretendsManyRanksOnManyHosts) {
  const World world = World::fake(1024, 777, 8);
  EXPECT_EQ(world.backend(), "fake");
  EXPECT_EQ(world.rank(), 777);
  EXPECT_EQ(world.size(), 1024);
  EXPECT_EQ(world.num_hosts(), 128);
  EXPECT_EQ(world.host_of(777), 97);
  EXPECT_EQ(world.local_rank(), 1);
  EXPECT_EQ(world.local_size(), 8);
}

TEST(Fake, TakesTheOthersToHoldWhatThisRankHolds) {
  const World world = World::fake(4, 2);
  const at::Tensor full = at::zeros({4, 2});
  world.communicator().all_gather(full, at::tensor({1.F, 2.F})).wait();
  EXPECT_TRUE(at::equal(full, at::tensor({1.F, 2.F}).expand({4, 2})));

  const at::Tensor sum = at::full({2}, 3.F);
  world.communicator().all_reduce(sum).wait();
  EXPECT_TRUE(at::equal(sum, at::full({2}, 12.F)));

  const at::Tensor shard = at::ones({1});
  world.communicator()
      .reduce_scatter(shard, at::arange(4, at::kFloat),
                      {.op = ReduceOp::average, .accumulate = true})
      .wait();
  EXPECT_EQ(shard.item<float>(), 3.F);
}

TEST(Fake, IsSentByTheOthersWhatItSendsToItself) {
  const World world = World::fake(2, 1);
  const auto received = at::zeros({2, 2});
  world.communicator().all_to_all(received, at::tensor({1.F, 2.F, 3.F, 4.F})).wait();
  EXPECT_TRUE(received.equal(at::tensor({3.F, 4.F, 3.F, 4.F}).view({2, 2})));
}

TEST(Fake, GathersInPlace) {
  const World world = World::fake(3, 1);
  const at::Tensor full = at::arange(6, at::kFloat).view({3, 2});
  world.communicator().all_gather(full, full.select(0, 1)).wait();
  EXPECT_TRUE(at::equal(full, at::tensor({2.F, 3.F}).expand({3, 2})));
}

TEST(Fake, ChecksItsShape) {
  EXPECT_EQ(error_of([] { World::fake(0); }), "World::fake: size is 0, expected at least 1");
  EXPECT_EQ(error_of([] { World::fake(4, 4); }), "World::fake: rank is 4, expected 0 to 3");
  EXPECT_EQ(error_of([] { World::fake(4).split(1, "odd"); }),
            "split into 'odd': a fake rank knows no other rank's colour; give the groups instead");
}

}  // namespace
}  // namespace fullshard::comm
