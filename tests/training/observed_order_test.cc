// SPDX-License-Identifier: Apache-2.0
// The order of units is that of forwards that a backward follows.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"
#include "fullshard/engine/engine_access.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"

namespace fullshard::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct OrderedPartImpl : Unit {
  OrderedPartImpl() : weight(register_parameter("weight", at::ones({6}))) {}
  at::Tensor forward(const at::Tensor& x) { return weight * x; }
  at::Tensor weight;
};
FULLSHARD_UNIT(OrderedPart);

struct OrderedImpl : Unit {
  OrderedImpl() {
    left = register_module("left", OrderedPart());
    right = register_module("right", OrderedPart());
  }
  at::Tensor forward(const at::Tensor& x, bool right_first) {
    return (right_first ? left(right(x)) : right(left(x))).sum();
  }
  OrderedPart left{nullptr}, right{nullptr};
};
FULLSHARD_UNIT(Ordered);

TEST(ObservedOrder, IsNotThatOfAnEvaluation) {
  run_ranks({.ranks = 2}, [](const World& world) {
    Ordered model;
    auto sharded = shard(model, world);
    const auto& schedule = engine::EngineAccess::of(sharded).schedule();
    {
      at::NoGradGuard no_grad;
      model(at::ones({6}), true);
    }
    EXPECT_THAT(schedule.next_in_forward(0), IsEmpty());
    model(at::ones({6}), false).backward();
    EXPECT_THAT(schedule.next_in_forward(0), ElementsAre(1, 2));
  });
}

}  // namespace
}  // namespace fullshard::testing
