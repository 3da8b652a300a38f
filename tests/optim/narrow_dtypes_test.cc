// SPDX-License-Identifier: Apache-2.0
// bf16 masters and states: casts, stochastic rounding.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "fullshard/optim/adamw.h"
#include "fullshard/optim/kernels/cast_kernels.h"
#include "fullshard/optim/kernels/element_blocks.h"
#include "fullshard/optim/sgd.h"
#include "tests/optim/fixed_gradients.h"

namespace fullshard::testing {
namespace {

// Every exponent, some mantissas, ties, subnormals, infinities and NaN.
at::Tensor awkward_values() {
  std::vector<float> values;
  for (uint32_t high = 0; high < 0x10000; ++high) {
    for (const uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0x1000u, 0xffffu}) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return at::tensor(values);
}

TEST(Casts, AreTorchs) {
  const auto values = awkward_values();
  for (const auto dtype : {at::kBFloat16, at::kHalf, at::kDouble}) {
    const auto expected = values.to(dtype);
    auto actual = at::empty_like(expected);
    optim::store<float>({actual.data_ptr(), dtype}, values.const_data_ptr<float>(), values.numel());
    const auto is_number = at::isnan(values).logical_not();
    EXPECT_TRUE(at::equal(at::isnan(actual), at::isnan(expected))) << dtype;
    EXPECT_TRUE(at::equal(actual.masked_select(is_number), expected.masked_select(is_number)))
        << dtype;
    auto back = at::empty_like(values);
    optim::load(back.data_ptr<float>(), {expected.data_ptr(), dtype}, expected.numel());
    EXPECT_TRUE(
        at::equal(back.masked_select(is_number), expected.to(at::kFloat).masked_select(is_number)))
        << dtype;
  }
}

TEST(StochasticRounding, HasTheValueAsItsMean) {
  constexpr int64_t kNumel = 1 << 20;
  for (const float value : {1.0f + 1.0f / 1024, -3.14159f, 1e-20f, 1.0f}) {
    const auto values = at::full({kNumel}, value);
    auto rounded = at::empty({kNumel}, at::kBFloat16);
    optim::store_stochastically(rounded.data_ptr(), values.const_data_ptr<float>(), kNumel,
                                optim::RoundingKey::of(3, 7, optim::hash_of("weight")), 0);
    const auto wide = rounded.to(at::kDouble);
    const double low = wide.min().item<double>(), high = wide.max().item<double>();
    // Two neighbours with a distance d: the mean's standard deviation is at most d / (2 √n).
    const double bound = 5 * (high - low) / 2 / std::sqrt(double(kNumel));
    EXPECT_LE(std::abs(wide.mean().item<double>() - value), bound) << value;
    EXPECT_LE(high - low, std::abs(value) / 64) << value;
  }
}

TEST(StochasticRounding, LeavesInfinityAndNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(optim::round_stochastically(infinity, 0xffff), 0x7f80);
  EXPECT_EQ(optim::round_stochastically(-infinity, 0xffff), 0xff80);
  EXPECT_EQ(optim::round_stochastically(std::bit_cast<float>(0x7fffffffu), 0xffff), 0x7fc0);
}

TEST(StochasticRounding, DependsOnSeedStepTensorAndElement) {
  const auto bits = [](uint64_t seed, int64_t step, const char* name, uint64_t element) {
    return optim::random_bits(optim::RoundingKey::of(seed, step, optim::hash_of(name)), element);
  };
  const auto some = bits(1, 2, "weight", 3);
  EXPECT_EQ(bits(1, 2, "weight", 3), some);
  EXPECT_NE(bits(2, 2, "weight", 3), some);
  EXPECT_NE(bits(1, 3, "weight", 3), some);
  EXPECT_NE(bits(1, 2, "weighs", 3), some);
  EXPECT_NE(bits(1, 2, "weight", 4), some);
  EXPECT_NE(bits(1, 2, "weight", 3 + (uint64_t{1} << 32)), some);
}

// bf16 masters of `numel` elements from `first` on in their tensor, all rounded from one value.
std::vector<uint16_t> rounded_masters(int64_t first, int64_t numel, float value,
                                      const optim::RoundingKey& key) {
  std::vector<uint16_t> masters(static_cast<size_t>(numel));
  optim::PieceElements piece;
  piece.master = {masters.data(), at::kBFloat16};
  piece.numel = numel;
  piece.first = first;
  piece.rounding = key;
  optim::update_elements(piece, [&](const auto& block) {
    std::fill(block.master, block.master + block.numel, value);
  });
  return masters;
}

TEST(StochasticRounding, OfAMasterTakesTheBitsOfEachElementBeyondABlock) {
  constexpr float kValue = 1.0f + 1.0f / 256;  // in the middle of two neighbours
  constexpr int64_t kFirst = 777, kNumel = 5 * optim::kBlockNumel + 19;
  const auto key = optim::RoundingKey::of(3, 7, optim::hash_of("weight"));
  const auto masters = rounded_masters(kFirst, kNumel, kValue, key);
  for (int64_t i = 0; i < kNumel; ++i) {
    const auto random = optim::random_bits(key, static_cast<uint64_t>(kFirst + i));
    ASSERT_EQ(masters[i], optim::round_stochastically(kValue, random)) << "element " << i;
  }
}

TEST(StochasticRounding, DoesNotRepeatItselfAtAnyDistance) {
  constexpr float kValue = 1.0f + 1.0f / 256;
  constexpr int64_t kNumel = 1 << 16;
  const auto masters =
      rounded_masters(0, kNumel, kValue, optim::RoundingKey::of(1, 2, optim::hash_of("weight")));
  for (int64_t distance = 1; distance <= kNumel / 2; distance *= 2) {
    int64_t equal = 0;
    for (int64_t i = distance; i < kNumel; ++i) equal += masters[i] == masters[i - distance];
    const auto pairs = static_cast<double>(kNumel - distance);
    // Half of them are equal by chance; six standard deviations.
    EXPECT_NEAR(static_cast<double>(equal), pairs / 2, 3 * std::sqrt(pairs)) << distance;
  }
}

MakeOptimizer adamw(at::ScalarType state_dtype, uint64_t seed = 0) {
  return [=](ShardedModel& model) {
    return std::make_unique<AdamW>(
        model, AdamWOptions{.lr = 1e-3, .state_dtype = state_dtype, .rounding_seed = seed});
  };
}

TEST(Bf16Masters, HaveTheSameBitsForEveryCut) {
  for (const int ranks : {1, 2, 3}) {
    std::optional<FixedOutcome> first;
    for (const int stage : {0, 1, 2, 3}) {
      for (const int64_t sub_group : {0, 7}) {
        FixedRun run{.ranks = ranks, .dtype = at::kBFloat16};
        run.shard.sharding.zero_stage = stage;
        run.shard.sub_group_size = sub_group;
        const auto outcome = train_fixed(run, adamw(at::kBFloat16, 11));
        if (!first) first = outcome;
        const auto what = fmt::format("{} ranks, stage {}, {}", ranks, stage, sub_group);
        expect_same_bits(outcome.masters, first->masters, what);
        expect_same_bits(outcome.states[1], first->states[1], what);
      }
    }
  }
}

TEST(Bf16Masters, AnotherSeedRoundsOtherwise) {
  FixedRun run{.dtype = at::kBFloat16};
  const auto one = train_fixed(run, adamw(at::kFloat, 1));
  const auto other = train_fixed(run, adamw(at::kFloat, 2));
  EXPECT_FALSE(at::equal(one.masters.at("weight"), other.masters.at("weight")));
}

TEST(Bf16Masters, MoveByStepsTooSmallForOneRounding) {
  // lr · gradient is a hundredth of the distance of two bf16 neighbours at most: rounding to the
  // nearest would never move.
  FixedRun run{.dtype = at::kBFloat16, .steps = 200, .clip = 0};
  const auto sgd = [](ShardedModel& model) {
    return std::make_unique<Sgd>(model, SgdOptions{.lr = 1e-5});
  };
  const auto moved = train_fixed(run, sgd).masters;
  double sum = 0, expected = 0;
  for (const auto& item : make_fixed(at::kBFloat16)->named_parameters()) {
    const auto before = item.value().detach().to(at::kDouble);
    sum += (moved.at(item.key()).to(at::kDouble) - before).abs().sum().item<double>();
    for (int step = 0; step < run.steps; ++step) {
      expected += 1e-5 * mean_gradients(step, 1).at(item.key()).abs().sum().item<double>();
    }
  }
  EXPECT_GT(sum, 0.1 * expected);
}

TEST(Bf16States, StayCloseToFp32States) {
  FixedRun run{.ranks = 2};
  const auto narrow = train_fixed(run, adamw(at::kBFloat16));
  const auto wide = train_fixed(run, adamw(at::kFloat));
  EXPECT_EQ(narrow.states[0].at("weight").scalar_type(), at::kBFloat16);
  Values expected;
  for (const auto& [name, value] : wide.masters) expected[name] = value.to(at::kDouble);
  // Moments are right to 2^-8, so is each of the four steps of about lr.
  expect_close(narrow.masters, expected, "bf16 states", 4 * 1e-3 / 64);
  EXPECT_FALSE(at::equal(narrow.masters.at("weight"), wide.masters.at("weight")));
}

}  // namespace
}  // namespace fullshard::testing
