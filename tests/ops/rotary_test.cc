// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/rotary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

RotaryTable table_of(int64_t half, int64_t num_positions) {
  return make_rotary_table(1.0 / at::pow(10000, at::arange(half, at::kFloat) / half),
                           num_positions);
}

// transformers' rule: x * cos + rotate_half(x) * sin with both halves of cos and sin equal.
at::Tensor expected_rotation(const at::Tensor& input, const RotaryTable& table,
                             const at::Tensor& rows) {
  const auto both = [&](const at::Tensor& values) {
    return at::cat({values, values}, -1).index({rows}).unsqueeze(-2).to(input.scalar_type());
  };
  const auto halves = input.chunk(2, -1);
  return input * both(table.cos) + at::cat({-halves[1], halves[0]}, -1) * both(table.sin);
}

TEST(RotaryTable, HoldsCosAndSinOfPositionTimesFrequency) {
  const auto table = make_rotary_table(at::tensor({1.0f, 0.5f}), 4, 2.0);
  EXPECT_EQ(table.cos.sizes(), (std::vector<int64_t>{4, 2}));
  EXPECT_FLOAT_EQ(table.cos[3][1].item<float>(), 2 * std::cos(1.5f));
  EXPECT_FLOAT_EQ(table.sin[3][0].item<float>(), 2 * std::sin(3.0f));
}

TEST(Rotary, TurnsPairsByThePositionsAngle) {
  for (const int64_t half : {1, 3, 16, 24, 33}) {
    const auto table = table_of(half, 9);
    const auto rows = at::arange(7, at::kLong);
    expect_same([&](const Inputs& in) { return apply_rotary(in[0], table); },
                [&](const Inputs& in) { return expected_rotation(in[0], table, rows); },
                {at::randn({2, 7, 3, 2 * half})}, at::randn({2, 7, 3, 2 * half}), at::kFloat, 1e-6);
  }
}

TEST(Rotary, HasTheSlopesOfItsValues) {
  const auto table = table_of(2, 5);
  expect_slopes([&](const Inputs& in) { return apply_rotary(in[0], table); },
                {at::randn({2, 5, 2, 4})}, at::randn({2, 5, 2, 4}));
}

TEST(Rotary, TakesPositionsOfEveryToken) {
  const auto table = table_of(4, 9);
  const auto rows = at::tensor({8, 0, 3, 3, 1, 7}, at::kLong).view({2, 3});
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    expect_same([&](const Inputs& in) { return apply_rotary(in[0], table, rows); },
                [&](const Inputs& in) { return expected_rotation(in[0], table, rows); },
                {at::randn({2, 3, 2, 8})}, at::randn({2, 3, 2, 8}), dtype, 1e-6);
  }
  const auto shared = at::tensor({2, 4, 6}, at::kInt).view({1, 3});
  const auto input = at::randn({2, 3, 2, 8});
  EXPECT_TRUE(at::equal(apply_rotary(input, table, shared),
                        apply_rotary(input, table, shared.expand({2, 3}).to(at::kLong))));
}

TEST(Rotary, TakesStridedInputsAndGradients) {
  const auto table = table_of(4, 5);
  const auto rows = at::arange(5, at::kLong);
  expect_same(
      [&](const Inputs& in) {
        return apply_rotary(in[0].transpose(1, 2).narrow(3, 8, 8), table).transpose(2, 3);
      },
      [&](const Inputs& in) {
        return expected_rotation(in[0].transpose(1, 2).narrow(3, 8, 8), table, rows)
            .transpose(2, 3);
      },
      {at::randn({2, 3, 5, 24})}, at::randn({2, 5, 8, 3}), at::kFloat, 1e-6);
}

TEST(Rotary, ComputesBf16InFp32) {
  const auto table = table_of(8, 6);
  const auto input = at::randn({1, 6, 2, 16}, at::kBFloat16);
  EXPECT_TRUE(at::equal(apply_rotary(input, table),
                        apply_rotary(input.to(at::kFloat), table).to(at::kBFloat16)));
}

TEST(Rotary, TakesAnEmptyBatch) {
  EXPECT_EQ(apply_rotary(at::randn({0, 3, 2, 8}), table_of(4, 3)).numel(), 0);
}

TEST(Rotary, NamesPositionsBeyondTheTable) {
  const auto table = table_of(4, 5);
  EXPECT_THAT(
      [&] {
        apply_rotary(at::randn({1, 6, 1, 8}), table);
      },
      testing::ThrowsMessage<Error>(
          "apply_rotary: a sequence of 6 positions, but the table was made for 5; make a "
          "longer table"));
  const auto rows = at::tensor({0, 5}, at::kLong).view({1, 2});
  EXPECT_THAT(
      [&] {
        apply_rotary(at::randn({1, 2, 1, 8}), table, rows);
      },
      testing::ThrowsMessage<Error>(
          "apply_rotary: positions from 0 to 5, but the table has rows 0 to 4; make a "
          "longer table"));
}

}  // namespace
}  // namespace fullshard::ops
