// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/slot_gradients.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace fullshard::engine {
namespace {

// "table" is most of the group and stands alone; the others lie side by side.
struct Slots {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<memory::Pool> pool = std::make_shared<memory::Pool>(
      [](int64_t bytes) { return at::full({bytes}, 0x55, at::kByte); }, ledger, tiers::Tier::device,
      memory::Returned::freed);
  Layout layout{{{"table", {10, 4}}, {"a", {2, 4}}, {"b", {3, 4}}}, 1, 4};
  SlotGradients slots{pool, layout, at::kFloat};

  int64_t held() const { return ledger->held(tiers::Purpose::gradients); }
};

TEST(SlotGradients, OpenEmptyThenWithWhatTheyHold) {
  Slots s;
  EXPECT_FALSE(s.slots.is_filled(1));
  auto sink = s.slots.open(1);
  EXPECT_FALSE(sink.accumulate);
  EXPECT_EQ(sink.target.sizes(), at::IntArrayRef({2, 4}));
  sink.target.fill_(2);
  sink = s.slots.open(1);
  EXPECT_TRUE(sink.accumulate);
  EXPECT_TRUE(sink.target.equal(at::full({2, 4}, 2.0f)));
}

TEST(SlotGradients, NeighboursAreOnePieceOfMemory) {
  Slots s;
  const auto a = s.slots.open(1).target, b = s.slots.open(2).target;
  EXPECT_EQ(a.data_ptr<float>() + a.numel(), b.data_ptr<float>());
  EXPECT_EQ(s.held(), 20 * 4);  // without the table
}

TEST(SlotGradients, ALargeSlotTakesTheTensorItself) {
  Slots s;
  const auto gradient = at::rand({10, 4});
  ASSERT_TRUE(s.slots.take(0, gradient));
  EXPECT_EQ(s.slots.view(0).data_ptr(), gradient.data_ptr());
  EXPECT_EQ(s.held(), 40 * 4);
  EXPECT_TRUE(s.slots.open(0).accumulate);
}

TEST(SlotGradients, TakeOnlyWhatFits) {
  Slots s;
  EXPECT_FALSE(s.slots.take(1, at::rand({2, 4})));                // lies in the buffer
  EXPECT_FALSE(s.slots.take(0, at::rand({10, 4}, at::kDouble)));  // another dtype
  EXPECT_FALSE(s.slots.take(0, at::rand({4, 10}).t()));           // not contiguous
  EXPECT_FALSE(s.slots.take(0, at::rand({40})));                  // another shape
  s.slots.open(0);
  EXPECT_FALSE(s.slots.take(0, at::rand({10, 4})));  // there is one already
}

TEST(SlotGradients, WhatNothingCameForIsZero) {
  Slots s;
  s.slots.open(1).target.fill_(3);
  s.slots.fill_missing();
  EXPECT_TRUE(s.slots.view(0).equal(at::zeros({10, 4})));
  EXPECT_TRUE(s.slots.view(1).equal(at::full({2, 4}, 3.0f)));
  EXPECT_TRUE(s.slots.view(2).equal(at::zeros({3, 4})));
}

TEST(SlotGradients, DropLeavesNothing) {
  Slots s;
  s.slots.fill_missing();
  s.slots.drop();
  EXPECT_EQ(s.held(), 0);
  EXPECT_FALSE(s.slots.is_filled(0));
  EXPECT_FALSE(s.slots.open(0).accumulate);
}

TEST(SlotGradients, KeepTheirMemoryWhereItIsWrittenAgainAndAgain) {
  Slots s;
  ASSERT_TRUE(s.slots.take(0, at::rand({10, 4})));
  s.slots.fill_missing();
  s.slots.keep_memory();
  const auto before = s.slots.memory();
  ASSERT_EQ(before.size(), 2u);
  s.slots.drop();
  for (int slot = 0; slot < 3; ++slot) EXPECT_FALSE(s.slots.is_filled(slot));
  EXPECT_EQ(s.held(), 60 * 4);
  EXPECT_FALSE(s.slots.take(0, at::rand({10, 4}))) << "the place of the table is taken";
  EXPECT_FALSE(s.slots.open(0).accumulate);
  EXPECT_EQ(s.slots.open(0).target.data_ptr(), before[1].data_ptr());
  s.slots.drop();
  s.slots.mark_filled();
  for (int slot = 0; slot < 3; ++slot) EXPECT_TRUE(s.slots.open(slot).accumulate);
  EXPECT_EQ(s.slots.memory()[0].data_ptr(), before[0].data_ptr());
}

}  // namespace
}  // namespace fullshard::engine
