// SPDX-License-Identifier: Apache-2.0
// Clipping for loops that do not look at the norm. On the CPU there is nothing to wait for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"
#include "fullshard/optim/adamw.h"
#include "fullshard/optim/stepper.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

struct OneRank {
  OneRank() : sharded(shard(model, World::single())), optimizer(sharded, {.lr = 1e-2}) {}

  Values masters() const {
    Values values;
    for (const auto& piece : sharded.pieces()) values[piece.name] = piece.master.clone();
    return values;
  }

  Fixed model = make_fixed();
  ShardedModel sharded;
  AdamW optimizer;
};

TEST(ClipWithoutWaiting, IsClipGradNormOnTheCpu) {
  OneRank waiting, other;
  for (int step = 0; step < 2; ++step) {
    waiting.model(fixed_gradients(step, 0)).backward();
    other.model(fixed_gradients(step, 0)).backward();
    const double norm = waiting.sharded.clip_grad_norm(0.5);
    EXPECT_EQ(other.optimizer.clip_without_waiting(0.5).item<double>(), norm);
    for (auto* run : {&waiting, &other}) {
      run->optimizer.step();
      run->optimizer.zero_grad();
    }
  }
  expect_same_bits(other.masters(), waiting.masters(), "clipped without waiting");
}

TEST(ClipWithoutWaiting, RefusesANegativeNorm) {
  OneRank run;
  try {
    (void)run.optimizer.clip_without_waiting(-1);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("clip_without_waiting: max_norm is -1"));
  }
}

TEST(Stepper, ReportsTheNormOnTheCpuEvenWhenNobodyAsks) {
  OneRank asking, other;
  Stepper asks(asking.sharded, asking.optimizer, {.max_grad_norm = 0.5});
  Stepper does_not(other.sharded, other.optimizer, {.max_grad_norm = 0.5});
  asks.backward(asking.model(fixed_gradients(0, 0)));
  does_not.backward(other.model(fixed_gradients(0, 0)));
  EXPECT_EQ(does_not.step_without_norm().grad_norm, asks.step().grad_norm);
  expect_same_bits(other.masters(), asking.masters(), "a step without the norm");
}

}  // namespace
}  // namespace fullshard::testing
