// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/traffic.h"

#include <gtest/gtest.h>

namespace fullshard::engine {
namespace {

bool reduces_in_stages(int ranks, int ranks_per_host, int num_shards,
                       const TrafficOptions& options = {}) {
  const Mesh mesh(World::fake(ranks, 0, ranks_per_host), num_shards);
  return Traffic(mesh, options).reduces_in_stages();
}

TEST(Traffic, ReducesInStagesWhereTheShardsAreTheRanksOfOneHost) {
  EXPECT_TRUE(reduces_in_stages(8, 4, 4));
  EXPECT_TRUE(reduces_in_stages(6, 2, 2));
  EXPECT_FALSE(reduces_in_stages(8, 4, 2)) << "two replicas in a host";
  EXPECT_FALSE(reduces_in_stages(8, 2, 4)) << "shards over two hosts";
  EXPECT_FALSE(reduces_in_stages(8, 8, 4)) << "one host";
}

TEST(Traffic, ReducesInOneStageWhereOneAxisHoldsEveryone) {
  EXPECT_FALSE(reduces_in_stages(8, 4, 8));
  EXPECT_FALSE(reduces_in_stages(8, 4, 1));
  EXPECT_FALSE(reduces_in_stages(8, 1, 1));
}

TEST(Traffic, AllReducesInOneStage) {
  EXPECT_FALSE(reduces_in_stages(8, 4, 4, {.reduce_scatter = false}));
}

}  // namespace
}  // namespace fullshard::engine
