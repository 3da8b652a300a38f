// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/relocation.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <memory>

namespace fullshard::memory {
namespace {

using tiers::Purpose;
using tiers::Tier;

at::Tensor plain_memory(int64_t bytes) { return at::empty({bytes}, at::kByte); }

struct TwoPools {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<Pool> device = std::make_shared<Pool>(plain_memory, ledger, Tier::device);
  std::shared_ptr<Pool> host = std::make_shared<Pool>(plain_memory, ledger, Tier::host);
  std::shared_ptr<Pool> other = std::make_shared<Pool>(plain_memory, ledger, Tier::host);
  Relocation to_host{*device, *host};
};

TEST(Relocation, MovesBlocksWithTheirValuesAndTheLedger) {
  TwoPools pools;
  auto block = pools.device->take(400, Purpose::gradients);
  block.as(100, at::kFloat).copy_(at::arange(100));
  const void* const before = block.data();
  pools.to_host.move(block);
  EXPECT_NE(block.data(), before);
  EXPECT_EQ(block.tier(), Tier::host);
  EXPECT_TRUE(at::equal(block.as(100, at::kFloat), at::arange(100).to(at::kFloat)));
  EXPECT_EQ(pools.ledger->held(Purpose::gradients), 0);
  EXPECT_EQ(pools.ledger->held(Purpose::gradients, Tier::host), 400);
  block = {};
  EXPECT_EQ(pools.ledger->held_total(Tier::host), 0);
}

TEST(Relocation, LeavesWhatIsOfOtherPoolsAndWhatIsEmpty) {
  TwoPools pools;
  auto block = pools.other->take(16, Purpose::master);
  const void* const before = block.data();
  pools.to_host.move(block);
  EXPECT_EQ(block.data(), before);
  Block empty;
  pools.to_host.move(empty);
  EXPECT_FALSE(empty);
  at::Tensor undefined;
  pools.to_host.move(undefined, Purpose::gradients);
  EXPECT_FALSE(undefined.defined());
}

TEST(Relocation, MovesTensorsThatStandInTheLedger) {
  TwoPools pools;
  at::Tensor tensor = at::arange(6).to(at::kFloat).view({2, 3});
  pools.ledger->hold(Purpose::gradients, Tier::device, 24);
  pools.to_host.move(tensor, Purpose::gradients);
  EXPECT_TRUE(at::equal(tensor, at::arange(6).to(at::kFloat).view({2, 3})));
  EXPECT_EQ(pools.ledger->held(Purpose::gradients), 0);
  EXPECT_EQ(pools.ledger->held(Purpose::gradients, Tier::host), 24);
}

}  // namespace
}  // namespace fullshard::memory
