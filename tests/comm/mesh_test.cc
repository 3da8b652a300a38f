// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "expect_error.h"

namespace fullshard::comm {
namespace {

TEST(Mesh, PutsNeighboursOnTheShardsAxis) {
  const World world = World::fake(12, 7);
  const Mesh mesh(world, 4);
  EXPECT_EQ(mesh.num_shards(), 4);
  EXPECT_EQ(mesh.num_replicas(), 3);
  EXPECT_EQ(mesh.shard(), 3);
  EXPECT_EQ(mesh.replica(), 1);
  EXPECT_EQ(mesh.shards().rank(), 3);
  EXPECT_EQ(mesh.shards().size(), 4);
  EXPECT_EQ(mesh.shards().group(), "shards");
  EXPECT_EQ(mesh.replicas().rank(), 1);
  EXPECT_EQ(mesh.replicas().size(), 3);
  EXPECT_EQ(mesh.replicas().group(), "replicas");
  EXPECT_EQ(mesh.everyone().size(), 12);
}

TEST(Mesh, ListsTheDivisorsWhenTheShardsDoNotFit) {
  const World world = World::fake(6);
  EXPECT_EQ(error_of([&] { Mesh(world, 4); }),
            "mesh: 4 shards do not divide the 6 ranks; use one of 1, 2, 3, 6");
  EXPECT_EQ(error_of([&] { Mesh(world, 0); }),
            "mesh: 0 shards do not divide the 6 ranks; use one of 1, 2, 3, 6");
}

TEST(Mesh, WorksAtAThousandRanks) {
  const Mesh mesh(World::fake(1024, 1023), 64);
  EXPECT_EQ(mesh.replica(), 15);
  EXPECT_EQ(mesh.shard(), 63);
}

TEST(Mesh, KnowsWhetherGathersLeaveTheirHosts) {
  EXPECT_FALSE(Mesh(World::fake(8, 0, 8), 8).gathers_between_hosts());
  EXPECT_TRUE(Mesh(World::fake(8, 0, 4), 8).gathers_between_hosts());
  EXPECT_FALSE(Mesh(World::fake(8, 0, 4), 4).gathers_between_hosts());
  EXPECT_FALSE(Mesh(World::fake(8, 0, 4), 2).gathers_between_hosts());
  EXPECT_FALSE(Mesh(World::fake(8, 0, 1), 1).gathers_between_hosts());
  // On two of three hosts of two ranks, all alike for every rank of the world.
  for (const int rank : {0, 5}) {
    EXPECT_TRUE(Mesh(World::fake(6, rank, 2), 3).gathers_between_hosts());
  }
}

TEST(Mesh, KeepsTheRanksOfAHostTogether) {
  using Ranks = std::vector<int>;
  EXPECT_EQ(mesh_order({0, 1, 0, 1}, 2), (Ranks{0, 2, 1, 3}));
  EXPECT_EQ(mesh_order({0, 1, 2, 0, 1, 2}, 2), (Ranks{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(mesh_order({0, 0, 1, 1}, 2), (Ranks{0, 1, 2, 3}));
  // A host may hold less than a replica, and hosts may hold different numbers.
  EXPECT_EQ(mesh_order({0, 1, 2, 3, 0, 1, 2, 3}, 4), (Ranks{0, 4, 1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(mesh_order({0, 1, 0, 0, 1, 0}, 3), (Ranks{0, 2, 3, 5, 1, 4}));
  // With one replica or one shard every order is as good: the ranks keep theirs.
  EXPECT_EQ(mesh_order({0, 1, 0, 1}, 4), (Ranks{0, 1, 2, 3}));
  EXPECT_EQ(mesh_order({0, 1, 0, 1}, 1), (Ranks{0, 1, 2, 3}));
}

// Ranks dealt out to the hosts in turn, as srun --distribution=cyclic does it.
TEST(Mesh, ShardsInsideHostsWhateverTheOrderOfRanks) {
  const ThreadRanks cyclic{.ranks = 4, .backend = "gloo", .hosts = {0, 1, 0, 1}};
  run_ranks(cyclic, [](const World& world) {
    const Mesh mesh(world, 2);
    EXPECT_EQ(mesh.replica(), world.host_of(world.rank()));
    EXPECT_EQ(mesh.shard(), world.rank() / 2);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_EQ(mesh.replica_of(rank), rank % 2);
      EXPECT_EQ(mesh.shard_of(rank), rank / 2);
    }
    const at::Tensor own = at::full({1}, world.rank(), at::kLong);
    const at::Tensor shards = at::empty({2}, at::kLong), replicas = at::empty({2}, at::kLong);
    mesh.shards().all_gather(shards, own).wait();
    mesh.replicas().all_gather(replicas, own).wait();
    const int64_t host = mesh.replica(), first = mesh.shard() * 2;
    EXPECT_TRUE(at::equal(shards, at::tensor({host, host + 2}, at::kLong)));
    EXPECT_TRUE(at::equal(replicas, at::tensor({first, first + 1}, at::kLong)));
  });
}

// Every rank receives the slice of its shard, summed over all ranks in the one order.
TEST(Mesh, ReducesEverySliceToTheRanksOfItsShard) {
  const ThreadRanks cyclic{.ranks = 4, .backend = "gloo", .hosts = {0, 1, 0, 1}};
  run_ranks(cyclic, [](const World& world) {
    const Mesh mesh(world, 2);
    const auto values = [](int rank) { return (at::arange(10) * 0.37 + rank * 1.7).sin(); };
    const at::Tensor shard = at::empty({5});
    mesh.in_order().reduce_scatter(shard, values(world.rank()), {.slices = 2}).wait();
    const auto whole = ((values(0) + values(2)) + (values(1) + values(3))) * 0.25f;
    EXPECT_TRUE(shard.equal(whole.narrow(0, mesh.shard() * 5, 5)));
    const at::Tensor all = values(world.rank());
    mesh.everyone().all_reduce(all, ReduceOp::average).wait();
    EXPECT_TRUE(all.equal(whole));
  });
}

TEST(Mesh, NeedsNoSecondGroupOfAllRanksWhereTheirOrderIsTheMeshs) {
  const Mesh mesh(World::fake(16, 3, 8), 8);
  EXPECT_EQ(&mesh.in_order(), &mesh.everyone());
}

class MeshOverThreads : public ::testing::TestWithParam<const char*> {};

TEST_P(MeshOverThreads, GathersAlongEachAxis) {
  run_ranks({.ranks = 4, .backend = GetParam()}, [](const World& world) {
    const Mesh mesh(world, 2);
    const at::Tensor own = at::full({1}, world.rank(), at::kLong);
    const at::Tensor shards = at::empty({2}, at::kLong), replicas = at::empty({2}, at::kLong);
    mesh.shards().all_gather(shards, own).wait();
    mesh.replicas().all_gather(replicas, own).wait();
    const int64_t first = mesh.replica() * 2, same = mesh.shard();
    EXPECT_TRUE(at::equal(shards, at::tensor({first, first + 1}, at::kLong)));
    EXPECT_TRUE(at::equal(replicas, at::tensor({same, same + 2}, at::kLong)));
  });
}

INSTANTIATE_TEST_SUITE_P(Backends, MeshOverThreads, ::testing::Values("shm", "gloo"));

}  // namespace
}  // namespace fullshard::comm
