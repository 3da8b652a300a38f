// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/engine_access.h"

#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "fullshard/nn/unit.h"

namespace fullshard::testing {
namespace {

struct FacadeModelImpl : Unit {
  FacadeModelImpl() { weight = register_parameter("weight", at::ones({3})); }
  at::Tensor forward(at::Tensor x) { return x * weight; }
  at::Tensor weight;
};
FULLSHARD_UNIT(FacadeModel);

template <class Model>
concept HandsOutItsEngine = requires(const Model& model) {
  model.engine();
};

TEST(EngineAccess, IsTheOnlyWayToTheEngine) {
  static_assert(!HandsOutItsEngine<ShardedModel>);
  const auto sharded = shard(FacadeModel(), World::fake(2, 0));
  EXPECT_EQ(engine::EngineAccess::of(sharded).plan().tree(), sharded.tree());
}

TEST(EngineAccess, IsTheSameForCopiesOfAModel) {
  const auto sharded = shard(FacadeModel(), World::fake(2, 0));
  const auto copy = sharded;
  EXPECT_EQ(&engine::EngineAccess::of(sharded), &engine::EngineAccess::of(copy));
}

}  // namespace
}  // namespace fullshard::testing
