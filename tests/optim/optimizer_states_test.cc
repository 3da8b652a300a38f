// SPDX-License-Identifier: Apache-2.0
// What an optimizer takes of gradients and of memory, and gives back.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "fullshard/optim/adamw.h"
#include "fullshard/optim/sgd.h"
#include "tests/errors.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

TEST(Optimizers, RefuseASecondStepWithTheSameGradients) {
  auto model = make_fixed();
  auto sharded = shard(model, World::single());
  Sgd sgd(sharded, {.lr = 0.5});
  model(fixed_gradients(0, 0)).backward();
  sgd.step();
  const auto after = sharded.pieces()[0].master.clone();
  EXPECT_EQ(message_of([&] { sgd.step(); }),
            "SGD: step(): there are no gradients since the last step, which took those that are "
            "there; call backward() first");
  EXPECT_TRUE(at::equal(sharded.pieces()[0].master, after));
  EXPECT_EQ(sgd.num_steps(), 1);
  model(fixed_gradients(1, 0)).backward();  // adds to them
  sgd.step();
  EXPECT_EQ(sgd.num_steps(), 2);
}

// Stages of training, each with an optimizer of its own.
TEST(Optimizers, GiveTheMemoryOfTheirStatesBack) {
  auto model = make_fixed();
  ShardOptions options;
  options.offload.streams_on_cpu = true;  // the CPU plays a device: sleeping moves something
  auto sharded = shard(model, World::single(), options);
  const auto states = [&] {
    return sharded.ledger().held(tiers::Purpose::optimizer, tiers::Tier::device);
  };
  const auto bytes_without = sharded.ledger().held_total(tiers::Tier::device);
  int64_t of_one = 0;
  for (int stage = 0; stage < 3; ++stage) {
    AdamW optimizer(sharded, {});
    if (stage == 0) of_one = states();
    EXPECT_EQ(states(), of_one);
    model(fixed_gradients(stage, 0)).backward();
    optimizer.step();
    optimizer.zero_grad();
    EXPECT_EQ(sharded.sleep().device_bytes, bytes_without + of_one);
    sharded.wake();
  }
  EXPECT_EQ(of_one, 2 * 4 * sharded.shard_numel(0) + 2 * 4 * sharded.shard_numel(1) +
                        2 * 4 * sharded.shard_numel(2));
  EXPECT_EQ(states(), 0);
}

}  // namespace
}  // namespace fullshard::testing
