// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/pool.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace fullshard::memory {
namespace {

struct Fixture : ::testing::Test {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<Pool> pool = std::make_shared<Pool>(
      [](int64_t bytes) { return at::empty({bytes}, at::kByte); }, ledger, tiers::Tier::device);
};
using PoolTest = Fixture;

TEST_F(PoolTest, GivesTheSameMemoryBackForTheSameSize) {
  void* first = nullptr;
  {
    const auto block = pool->take(1024, tiers::Purpose::parameters);
    first = block.data();
    EXPECT_EQ(ledger->held(tiers::Purpose::parameters), 1024);
  }
  EXPECT_EQ(ledger->held(tiers::Purpose::parameters), 0);
  const auto again = pool->take(1024, tiers::Purpose::gradients);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(ledger->held(tiers::Purpose::gradients), 1024);
  EXPECT_EQ(pool->num_allocations(), 1);
}

TEST_F(PoolTest, ReusesASlightlyLargerBlockButNotAMuchLargerOne) {
  { const auto large = pool->take(1024, tiers::Purpose::workspace); }
  { const auto close = pool->take(900, tiers::Purpose::workspace); }
  EXPECT_EQ(pool->num_allocations(), 1);
  { const auto small = pool->take(512, tiers::Purpose::workspace); }
  EXPECT_EQ(pool->num_allocations(), 2);
  EXPECT_EQ(pool->reserved_bytes(), 1536);
}

TEST_F(PoolTest, BlocksInUseAreNotShared) {
  const auto first = pool->take(64, tiers::Purpose::workspace);
  const auto second = pool->take(64, tiers::Purpose::workspace);
  EXPECT_NE(first.data(), second.data());
}

TEST_F(PoolTest, AMovedBlockIsGivenBackOnce) {
  auto block = pool->take(64, tiers::Purpose::workspace);
  Block other = std::move(block);
  EXPECT_FALSE(block);
  EXPECT_EQ(ledger->held(tiers::Purpose::workspace), 64);
  other = Block();
  EXPECT_EQ(ledger->held(tiers::Purpose::workspace), 0);
}

TEST_F(PoolTest, ABlockLooksLikeATensorOfAnyDtype) {
  const auto block = pool->take(16, tiers::Purpose::workspace);
  block.as(4, at::kFloat).fill_(2);
  EXPECT_EQ(block.as(2, at::kDouble).numel(), 2);
  EXPECT_EQ(block.as(4, at::kFloat).sum().item<float>(), 8);
}

}  // namespace
}  // namespace fullshard::memory
