// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/transposed_read.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_source.h"

namespace fullshard::testing {
namespace {

// Every range of a 5 × 3 matrix.
TEST(TransposedRead, ReadsEveryRangeExactlyOnce) {
  const auto matrix = at::arange(15).to(at::kFloat).view({5, 3});
  for (int64_t begin = 0; begin < 15; ++begin) {
    for (int64_t end = begin + 1; end <= 15; ++end) {
      const MemorySource source({{"w", matrix.t().contiguous()}});
      auto out = at::empty({end - begin});
      stored::read_transposed(source, "w", 5, 3, begin, out);
      EXPECT_TRUE(at::equal(out, matrix.view({-1}).narrow(0, begin, end - begin)));
      int64_t numel = 0;
      const auto ranges = source.ranges();
      for (const auto& range : ranges.at("w")) numel += range.end - range.begin;
      EXPECT_EQ(numel, end - begin);
    }
  }
}

TEST(TransposedRead, TakesAWholeMatrixInBlocksOfTheFile) {
  const int64_t rows = 3000, columns = 1500;  // 17 MiB
  const auto matrix = at::arange(rows * columns).to(at::kFloat).view({rows, columns});
  const MemorySource source({{"w", matrix.t().contiguous()}});
  auto out = at::empty({rows * columns});
  stored::read_transposed(source, "w", rows, columns, 0, out);
  EXPECT_TRUE(at::equal(out.view({rows, columns}), matrix));
  const auto ranges = source.ranges();
  EXPECT_EQ(ranges.at("w").size(), 5);
  for (const auto& range : ranges.at("w")) {
    EXPECT_LE((range.end - range.begin) * 4, 4 << 20);
  }
}

TEST(TransposedRead, ConvertsWhatItReads) {
  const auto matrix = at::arange(6).to(at::kBFloat16).view({2, 3});
  const MemorySource source({{"w", matrix.t().contiguous()}});
  auto out = at::empty({4}, at::kDouble);
  stored::read_transposed(source, "w", 2, 3, 1, out);
  EXPECT_TRUE(at::equal(out, at::arange(1, 5).to(at::kDouble)));
}

}  // namespace
}  // namespace fullshard::testing
