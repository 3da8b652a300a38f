// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/ordered_sum.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "expect_error.h"

namespace fullshard::comm {
namespace {

at::Tensor reduce(const std::vector<at::Tensor>& rows, const OrderedSum& options,
                  at::Tensor output = {}) {
  if (!output.defined()) output = at::zeros_like(rows.front());
  std::vector<const void*> pointers;
  for (const auto& row : rows) pointers.push_back(row.data_ptr());
  ordered_sum(output.data_ptr(), output.scalar_type(), pointers, rows.front().scalar_type(),
              output.numel(), options);
  return output;
}

at::Tensor row(std::vector<double> values, at::ScalarType dtype = at::kFloat) {
  return at::tensor(values, at::kDouble).to(dtype);
}

std::vector<at::Tensor> random_rows(int count, int64_t numel, at::ScalarType dtype) {
  std::vector<at::Tensor> rows;
  auto generator = at::make_generator<at::CPUGeneratorImpl>(7);
  for (int i = 0; i < count; ++i) {
    rows.push_back((at::randn({numel}, generator, at::TensorOptions(at::kDouble)) * 100).to(dtype));
  }
  return rows;
}

bool same_sum_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble, at::kLong};

TEST(OrderedSum, AddsRowsInAscendingOrder) {
  const float large = 16777216.0f;  // 2^24: adding one changes nothing
  EXPECT_EQ(reduce({row({large}), row({1}), row({1})}, {}).item<float>(), large);
  EXPECT_EQ(reduce({row({1}), row({1}), row({large})}, {}).item<float>(), large + 2);
}

TEST(OrderedSum, AddsHostsAfterTheirRanks) {
  const float large = 16777216.0f;
  const std::vector<at::Tensor> rows = {row({large}), row({0}), row({1}), row({1})};
  const int hosts[] = {2, 2};
  EXPECT_EQ(reduce(rows, {}).item<float>(), large);
  EXPECT_EQ(reduce(rows, {.rows_per_host = hosts}).item<float>(), large + 2);
}

TEST(OrderedSum, AverageMultipliesTheSumOnce) {
  const auto rows = random_rows(3, 1001, at::kFloat);
  const auto sum = reduce(rows, {.op = ReduceOp::sum});
  const auto average = reduce(rows, {.op = ReduceOp::average});
  EXPECT_TRUE(same_sum_bits(average, sum * static_cast<float>(1.0 / 3)));
}

TEST(OrderedSum, SumsSixteenBitRowsInSinglePrecision) {
  for (const auto dtype : {at::kBFloat16, at::kHalf}) {
    // In bf16 256 + 1 is 256, and in fp16 2048 + 1 is 2048.
    const double large = dtype == at::kHalf ? 2048 : 256;
    const auto sum = reduce({row({large}, dtype), row({1}, dtype), row({1}, dtype)}, {});
    EXPECT_EQ(sum.scalar_type(), dtype);
    EXPECT_EQ(sum.to(at::kFloat).item<float>(), static_cast<float>(large + 2));
  }
}

TEST(OrderedSum, EqualsAPlainLoopInEveryDtypeAndForEveryNumberOfRows) {
  for (const auto dtype : kDtypes) {
    for (int count = 1; count <= 5; ++count) {
      const auto rows = random_rows(count, 5003, dtype);
      at::Tensor expected = rows[0].to(sum_dtype(dtype));
      for (int i = 1; i < count; ++i) expected = expected + rows[i].to(sum_dtype(dtype));
      EXPECT_TRUE(same_sum_bits(reduce(rows, {}), expected.to(dtype))) << dtype << " " << count;
    }
  }
}

TEST(OrderedSum, BitsDoNotDependOnHowARangeIsCut) {
  constexpr int64_t kNumel = 5003;
  const int hosts[] = {2, 1, 1};
  for (const auto dtype : kDtypes) {
    const auto rows = random_rows(4, kNumel, dtype);
    const auto op = dtype == at::kLong ? ReduceOp::sum : ReduceOp::average;
    for (const OrderedSum& options : {OrderedSum{.op = op}, OrderedSum{op, true, hosts}}) {
      const auto whole = reduce(rows, options, at::full({kNumel}, 3, dtype));
      const auto cut = at::full({kNumel}, 3, dtype);
      for (int64_t begin = 0, width = 1; begin < kNumel; begin += width, width = width * 3 % 701) {
        const int64_t end = std::min(kNumel, begin + width);
        std::vector<at::Tensor> parts;
        for (const auto& each : rows) parts.push_back(each.slice(0, begin, end));
        reduce(parts, options, cut.slice(0, begin, end));
      }
      EXPECT_TRUE(same_sum_bits(whole, cut)) << dtype;
    }
  }
}

TEST(OrderedSum, AccumulatesOntoTheOldOutput) {
  const auto output = row({10, 20});
  reduce({row({1, 2}), row({3, 4})}, {.op = ReduceOp::average, .accumulate = true}, output);
  EXPECT_TRUE(output.equal(row({12, 23})));
}

TEST(OrderedSum, RoundsOnlyOnceIntoAnotherDtype) {
  const auto output = at::zeros({1}, at::kFloat);
  reduce({row({256}, at::kBFloat16), row({1}, at::kBFloat16)}, {}, output);
  EXPECT_EQ(output.item<float>(), 257.0f);
  const auto narrow = at::full({1}, 1, at::kBFloat16);
  reduce({row({256}), row({1.5})}, {.accumulate = true}, narrow);
  EXPECT_EQ(narrow.to(at::kFloat).item<float>(), 258.0f);  // 258.5 to even
}

TEST(OrderedSum, TakesTheLargestAndTheSmallest) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
    const std::vector<at::Tensor> rows = {row({1, 5, nan, 1}, dtype), row({2, 4, 1, nan}, dtype)};
    const auto largest = reduce(rows, {.op = ReduceOp::max}).to(at::kDouble);
    const auto smallest = reduce(rows, {.op = ReduceOp::min}).to(at::kDouble);
    EXPECT_TRUE(largest.slice(0, 0, 2).equal(row({2, 5}, at::kDouble)));
    EXPECT_TRUE(smallest.slice(0, 0, 2).equal(row({1, 4}, at::kDouble)));
    EXPECT_TRUE(largest.slice(0, 2).isnan().all().item<bool>());
    EXPECT_TRUE(smallest.slice(0, 2).isnan().all().item<bool>());
  }
  const int64_t least = std::numeric_limits<int64_t>::min();
  const auto a = at::full({1}, least, at::kLong), b = at::full({1}, 7, at::kLong);
  EXPECT_EQ(reduce({a, b}, {.op = ReduceOp::max}).item<int64_t>(), 7);
  EXPECT_EQ(reduce({a, b}, {.op = ReduceOp::min}).item<int64_t>(), least);
}

TEST(OrderedSum, OutputMayBeOneOfTheRows) {
  for (int own = 0; own < 3; ++own) {
    auto rows = random_rows(3, 5003, at::kBFloat16);
    const auto expected = reduce(rows, {});
    EXPECT_TRUE(same_sum_bits(reduce(rows, {}, rows[own]), expected));
  }
}

TEST(OrderedSum, EmptyRowsAreFine) {
  const auto empty = at::empty({0}, at::kFloat);
  EXPECT_EQ(reduce({empty, empty}, {}).numel(), 0);
}

TEST(OrderedSum, RefusesWhatHasNoMeaning) {
  const auto whole = at::zeros({1}, at::kLong);
  EXPECT_EQ(error_of([&] { reduce({whole}, {.op = ReduceOp::average}); }),
            "ordered sum: int64 has no average; ask for the sum and divide it");
  const auto bytes = at::zeros({1}, at::kByte);
  EXPECT_EQ(error_of([&] { reduce({bytes}, {}); }),
            "ordered sum: rows are Byte, expected fp32, bf16, fp16, fp64 or int64");
  EXPECT_EQ(error_of([&] { reduce({row({1})}, {}, whole); }),
            "ordered sum: the output is Long, expected fp32, bf16, fp16 or fp64");
  const int hosts[] = {1, 2};
  EXPECT_EQ(error_of([&] { reduce({row({1})}, {.rows_per_host = hosts}); }),
            "ordered sum: the hosts hold 3 rows together, expected 1 and none without rows");
}

}  // namespace
}  // namespace fullshard::comm
