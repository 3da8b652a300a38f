// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/master.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <memory>

#include "fullshard/engine/storage/master_halves.h"

namespace fullshard::engine {
namespace {

constexpr int64_t kMasterNumel = 10;

// One third, two thirds, …: no bf16 value among the first.
at::Tensor thirds() { return at::arange(1, kMasterNumel + 1, at::kFloat) / 3; }

struct Masters {
  std::shared_ptr<Ledger> ledger = std::make_shared<Ledger>();
  std::shared_ptr<memory::Pool> pool = std::make_shared<memory::Pool>(
      [](int64_t bytes) { return at::empty({bytes}, at::kByte); }, ledger, tiers::Tier::device);

  MasterPlace place(at::ScalarType compute, at::Tensor resting = {}) const {
    return {.parameter_pool = pool,
            .state_pool = pool,
            .scratch_pool = pool,
            .numel = kMasterNumel,
            .dtype = at::kFloat,
            .compute_dtype = compute,
            .resting = std::move(resting)};
  }
  // With the thirds, at rest.
  std::unique_ptr<Master> made(MasterPlace place, bool in_halves) const {
    auto master = make_master(std::move(place), in_halves);
    master->values(0, kMasterNumel).copy_(thirds());
    master->rest();
    return master;
  }
  int64_t bytes() const { return ledger->held(tiers::Purpose::master); }
};

at::Tensor all_of(const Master& master) { return master.values(0, kMasterNumel); }

TEST(PlainMaster, IsTheRestingSliceWhereThatHasItsDtype) {
  Masters masters;
  const auto resting = at::zeros({kMasterNumel});
  const auto master = masters.made(masters.place(at::kFloat, resting), false);
  EXPECT_TRUE(master->is_resting_slice());
  EXPECT_EQ(master->values(0, 1).data_ptr(), resting.data_ptr());
  EXPECT_FALSE(master->shown(0, 1).defined());
  EXPECT_EQ(masters.bytes(), 0);
}

TEST(PlainMaster, HasMemoryOfItsOwnWhereNothingRests) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kFloat), false);
  EXPECT_FALSE(master->is_resting_slice());
  EXPECT_EQ(masters.bytes(), 4 * kMasterNumel);
  EXPECT_EQ(master->to_send(at::Tensor()).data_ptr(), all_of(*master).data_ptr());
}

TEST(PlainMaster, ShowsAnUpdateUnlessTheUpdateHas) {
  Masters masters;
  const auto resting = at::zeros({kMasterNumel}, at::kBFloat16);
  const auto master = masters.made(masters.place(at::kBFloat16, resting), false);
  EXPECT_EQ(masters.bytes(), 4 * kMasterNumel);
  EXPECT_EQ(master->shown(3, 2).data_ptr(), resting.narrow(0, 3, 2).data_ptr());
  master->finish_update(/*is_shown=*/true);
  EXPECT_TRUE(at::equal(resting, at::zeros({kMasterNumel}, at::kBFloat16)));
  master->finish_update(/*is_shown=*/false);
  EXPECT_TRUE(at::equal(resting, thirds().to(at::kBFloat16)));
}

TEST(PlainMaster, IsCastIntoThePlaceThatIsSent) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kBFloat16), false);
  const auto place = at::zeros({kMasterNumel}, at::kBFloat16);
  EXPECT_TRUE(master->to_send(place).is_same(place));
  EXPECT_TRUE(at::equal(place, thirds().to(at::kBFloat16)));
}

TEST(PlainMaster, KeepsItsPrecisionWhereNobodyWrote) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kBFloat16), false);
  auto written = thirds().to(at::kBFloat16);
  written[7] = 5;
  master->take_written(written);
  auto expected = thirds();
  expected[7] = 5;
  EXPECT_TRUE(at::equal(all_of(*master), expected));
}

TEST(PlainMaster, IsWholeForGood) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kFloat), false);
  EXPECT_EQ(master->kept_whole(), nullptr);
  EXPECT_FALSE(master->is_in_halves());
  EXPECT_FALSE(master->lower_half(0, 1).defined());
}

TEST(HalvedMaster, TakesTwoBytesBesideValuesThatRestAndFourAlone) {
  for (const bool rests : {true, false}) {
    Masters masters;
    const auto resting = at::zeros({kMasterNumel}, at::kBFloat16);
    const auto place = masters.place(at::kBFloat16, rests ? resting : at::Tensor());
    const auto master = masters.made(place, true);
    EXPECT_TRUE(master->is_in_halves());
    EXPECT_EQ(masters.bytes(), (rests ? 2 : 4) * kMasterNumel);
    EXPECT_TRUE(at::equal(all_of(*master), thirds()));
    EXPECT_TRUE(at::equal(master->shown(0, kMasterNumel), nearest_halves(thirds())));
    EXPECT_EQ(master->lower_half(2, 3).numel(), 3);
    EXPECT_EQ(master->shown(0, 1).data_ptr() == resting.data_ptr(), rests);
  }
}

// Pinning takes long: memory of the host is taken once.
TEST(HalvedMaster, KeepsTheHostMemoryOfItsLowerHalves) {
  Masters masters;
  const auto host =
      std::make_shared<memory::Pool>([](int64_t bytes) { return at::empty({bytes}, at::kByte); },
                                     masters.ledger, tiers::Tier::host, memory::Returned::freed);
  auto place = masters.place(at::kBFloat16, at::zeros({kMasterNumel}, at::kBFloat16));
  place.state_pool = host;
  auto master = masters.made(std::move(place), true);
  const auto on_host = [&] {
    return masters.ledger->held(tiers::Purpose::master, tiers::Tier::host);
  };
  EXPECT_EQ(masters.bytes(), 0);
  EXPECT_EQ(on_host(), 2 * kMasterNumel);
  const void* lower = master->lower_half(0, 1).data_ptr();
  master->make_whole();
  EXPECT_EQ(on_host(), 2 * kMasterNumel);
  master->values(4, 1).fill_(0.1);
  master->rest();
  EXPECT_EQ(master->lower_half(0, 1).data_ptr(), lower);
  auto expected = thirds();
  expected[4] = 0.1;
  EXPECT_TRUE(at::equal(all_of(*master), expected));
  EXPECT_EQ(host->num_allocations(), 1);
  master = master->kept_whole();
  EXPECT_EQ(on_host(), 4 * kMasterNumel);  // it rests there still
}

TEST(HalvedMaster, IsSentAsItRests) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kBFloat16), true);
  EXPECT_EQ(master->to_send(at::Tensor()).data_ptr(), master->shown(0, 1).data_ptr());
}

TEST(HalvedMaster, IsWholeUntilItRestsAgain) {
  Masters masters;
  const auto master = masters.made(masters.place(at::kBFloat16), true);
  master->make_whole();
  EXPECT_FALSE(master->is_in_halves());
  EXPECT_FALSE(master->lower_half(0, 1).defined());
  EXPECT_EQ(masters.bytes(), 4 * kMasterNumel);
  master->values(4, 1).fill_(0.1);
  master->finish_update(/*is_shown=*/false);
  EXPECT_TRUE(master->is_in_halves());
  auto expected = thirds();
  expected[4] = 0.1;
  EXPECT_TRUE(at::equal(all_of(*master), expected));
}

// Ties go away from zero in halves: what was seen of such a value is no cast of it.
TEST(HalvedMaster, KeepsItsPrecisionWhereNobodyWrote) {
  Masters masters;
  const auto master = make_master(masters.place(at::kBFloat16), true);
  const float tie = 1 + 1.0f / 256;
  master->values(0, kMasterNumel).fill_(tie);
  auto written = nearest_halves(at::full({kMasterNumel}, tie));
  EXPECT_FALSE(at::equal(written, at::full({kMasterNumel}, tie).to(at::kBFloat16)));
  written[1] = 2;
  master->take_written(written);
  auto expected = at::full({kMasterNumel}, tie);
  expected[1] = 2;
  EXPECT_TRUE(at::equal(all_of(*master), expected));
}

TEST(HalvedMaster, GivesItsPlaceToAPlainOneWithItsValues) {
  Masters masters;
  const auto resting = at::zeros({kMasterNumel}, at::kBFloat16);
  auto master = masters.made(masters.place(at::kBFloat16, resting), true);
  master = master->kept_whole();
  ASSERT_NE(master, nullptr);
  EXPECT_TRUE(at::equal(all_of(*master), thirds()));
  EXPECT_EQ(masters.bytes(), 4 * kMasterNumel);
  master->rest();
  EXPECT_FALSE(master->is_in_halves());
  EXPECT_EQ(master->shown(0, 1).data_ptr(), resting.data_ptr());
}

}  // namespace
}  // namespace fullshard::engine
