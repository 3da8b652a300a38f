// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/master_halves.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "fullshard/base/float_halves.h"

namespace fullshard::engine {
namespace {

std::shared_ptr<memory::Pool> make_pool(const std::shared_ptr<Ledger>& ledger) {
  return std::make_shared<memory::Pool>([](int64_t bytes) { return at::empty({bytes}, at::kByte); },
                                        ledger, tiers::Tier::device);
}

// Random bits, so among them infinities and NaN; some of them exactly between two bf16 values.
at::Tensor awkward_values(int64_t numel) {
  auto bits = at::randint(std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max(),
                          {numel}, at::kInt);
  auto some = bits.narrow(0, 0, numel / 4);
  some.bitwise_and_(~0xffff).bitwise_or_(0x8000);
  return bits.view(at::kFloat);
}

// Both in memory of that pool.
MasterHalves halves_in(memory::Pool& pool, const at::Tensor& values) {
  const auto take = [&] { return pool.take(2 * values.numel(), tiers::Purpose::master); };
  return {values, {}, take(), take()};
}

TEST(MasterHalves, AreThoseOfEachFloat) {
  const auto ledger = std::make_shared<Ledger>();
  const auto pool = make_pool(ledger);
  const auto values = awkward_values(10'001);
  const auto halves = halves_in(*pool, values);
  const auto* nearest = halves.nearest().data_ptr<at::BFloat16>();
  const auto* lower = halves.lower().data_ptr<int16_t>();
  const auto again = nearest_halves(values);
  for (int64_t i = 0; i < values.numel(); ++i) {
    const auto expected = base::halves_of(values.data_ptr<float>()[i]);
    ASSERT_EQ(nearest[i].x, expected.nearest) << i;
    ASSERT_EQ(static_cast<uint16_t>(lower[i]), expected.lower) << i;
    ASSERT_EQ(again.data_ptr<at::BFloat16>()[i].x, expected.nearest) << i;
  }
}

TEST(MasterHalves, AreJoinedBitForBit) {
  const auto ledger = std::make_shared<Ledger>();
  const auto pool = make_pool(ledger);
  const auto values = awkward_values(10'001).nan_to_num_();
  const auto halves = halves_in(*pool, values);
  auto joined = at::empty_like(values);
  halves.join_into(joined);
  EXPECT_TRUE(at::equal(joined.view(at::kInt), values.view(at::kInt)));
  EXPECT_TRUE(at::equal(halves.joined(777, 2000), values.narrow(0, 777, 2000)));
}

// The two halves of a value on two tiers.
TEST(MasterHalves, OfWhichTheLowerRestElsewhereAreTheSame) {
  const auto ledger = std::make_shared<Ledger>();
  const auto pool = make_pool(ledger);
  const auto host = std::make_shared<memory::Pool>(
      [](int64_t bytes) { return at::empty({bytes}, at::kByte); }, ledger, tiers::Tier::host);
  const auto values = awkward_values(100).nan_to_num_();
  const auto together = halves_in(*pool, values);
  for (const bool rests : {false, true}) {
    const auto resting = rests ? at::empty({100}, at::kBFloat16) : at::Tensor();
    const auto before = ledger->held(tiers::Purpose::master);
    const MasterHalves halves(values, resting,
                              rests ? memory::Block() : pool->take(200, tiers::Purpose::master),
                              host->take(200, tiers::Purpose::master));
    EXPECT_EQ(ledger->held(tiers::Purpose::master) - before, rests ? 0 : 200);
    EXPECT_EQ(ledger->held(tiers::Purpose::master, tiers::Tier::host), 200);
    EXPECT_TRUE(at::equal(halves.nearest().view(at::kShort), together.nearest().view(at::kShort)));
    EXPECT_TRUE(at::equal(halves.lower(), together.lower()));
    EXPECT_TRUE(at::equal(halves.joined(3, 90), values.narrow(0, 3, 90)));
  }
}

TEST(MasterHalves, TakeTwoBytesBesideValuesThatRestAndFourAlone) {
  const auto ledger = std::make_shared<Ledger>();
  const auto pool = make_pool(ledger);
  const auto values = awkward_values(100);
  {
    const auto resting = at::empty({100}, at::kBFloat16);
    const MasterHalves halves(values, resting, {}, pool->take(200, tiers::Purpose::master));
    EXPECT_EQ(ledger->held(tiers::Purpose::master), 200);
    EXPECT_TRUE(halves.nearest().is_alias_of(resting));
  }
  const auto alone = halves_in(*pool, values);
  EXPECT_EQ(ledger->held(tiers::Purpose::master), 400);
}

}  // namespace
}  // namespace fullshard::engine
