#include "fullshard/comm/mesh.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "expect_error.h"

namespace fullshard {
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
}  // namespace fullshard
