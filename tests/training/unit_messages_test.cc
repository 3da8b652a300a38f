// SPDX-License-Identifier: Apache-2.0
// What a rank says of another that is gone, with the units' names as a user knows them.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "fullshard/base/error.h"
#include "fullshard/engine/sharded_model.h"
#include "fullshard/nn/unit.h"
#include "tests/errors.h"

namespace fullshard::testing {
namespace {

struct NamedBlockImpl : Unit {
  NamedBlockImpl() {
    linear = register_module("linear", torch::nn::Linear(3, 3));
    at::NoGradGuard no_grad;
    for (auto& parameter : parameters()) parameter.fill_(0.5);
  }
  at::Tensor forward(at::Tensor x) { return linear(x); }
  torch::nn::Linear linear{nullptr};
};
FULLSHARD_UNIT(NamedBlock);

struct NamedPairImpl : Unit {
  NamedPairImpl() {
    scale = register_parameter("scale", at::ones({3}));
    first = register_module("first", NamedBlock());
    second = register_module("second", NamedBlock());
  }
  at::Tensor forward(at::Tensor x, bool fails) {
    x = first(x * scale);
    check(!fails, "no more");
    return second(x);
  }
  at::Tensor scale;
  NamedBlock first{nullptr}, second{nullptr};
};
FULLSHARD_UNIT(NamedPair);

std::string told_to_rank_0(const std::string& backend) {
  std::string told;
  const auto first = message_of([&] {
    run_ranks({.ranks = 2, .backend = backend}, [&](const World& world) {
      NamedPair model;
      ShardOptions options;
      options.share_host_copy = false;
      auto sharded = shard(model, world, options);
      const bool fails = world.rank() == 1;
      const auto own = message_of([&] { model(at::ones({2, 3}), fails); });
      if (fails) throw Error(own);
      told = own;
    });
  });
  EXPECT_EQ(first, "no more");
  return told;
}

TEST(UnitMessages, NameTheUnitOfAGatherOnce) {
  EXPECT_EQ(told_to_rank_0("shm"),
            "rank 0: all_gather of unit 'second' (group shards, sequence 3) waits for rank 1, "
            "which failed: no more; its last act: all_gather of unit 'first' (sequence 2), "
            "finished; see rank 1's log");
  EXPECT_EQ(told_to_rank_0("gloo"),
            "rank 0: all_gather of unit 'second' (group shards, sequence 3) waits for rank 1, "
            "which failed: no more; its last act: all_gather of unit 'first' (group shards, "
            "sequence 2), finished; see rank 1's log");
}

TEST(UnitMessages, CallTheRootByThatName) {
  std::string told;
  message_of([&] {
    run_ranks({.ranks = 2}, [&](const World& world) {
      NamedPair model;
      ShardOptions options;
      options.share_host_copy = false;
      options.sync_module_states = false;
      auto sharded = shard(model, world, options);
      check(world.rank() == 0, "gone");
      told = message_of([&] { model(at::ones({2, 3}), false); });
    });
  });
  EXPECT_EQ(told,
            "rank 0: all_gather of the root unit (group shards, sequence 1) waits for rank 1, "
            "which failed: gone; its last act: all_gather of the comparison of values (group "
            "world, sequence 5), finished; see rank 1's log");
}

}  // namespace
}  // namespace fullshard::testing
