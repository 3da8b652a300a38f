// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/storage/value_hash.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace fullshard::engine {
namespace {

TEST(ValueHash, OfEveryLengthSeesEveryByte) {
  for (int64_t length = 0; length < 100; ++length) {
    auto bytes = at::zeros({length}, at::kByte);
    std::set<uint64_t> seen = {hash_values(bytes)};
    for (int64_t i = 0; i < length; ++i) {
      bytes[i] = 1;
      seen.insert(hash_values(bytes));
      bytes[i] = 0;
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), length + 1) << length;
    EXPECT_NE(hash_values(bytes), hash_values(at::zeros({length + 1}, at::kByte)));
  }
}

TEST(ValueHash, SeesAChangeInEveryBlockOfALargeTensor) {
  const int64_t block = 1 << 20;
  auto bytes = at::randint(0, 256, {3 * block + 5}, at::kByte);
  const auto before = hash_values(bytes);
  for (const int64_t place : {int64_t{0}, block - 1, block, 2 * block + 7, 3 * block + 4}) {
    auto other = bytes.clone();
    other[place] = other[place].bitwise_xor(0x40);
    EXPECT_NE(hash_values(other), before) << place;
  }
  auto swapped = bytes.clone();
  swapped.narrow(0, 0, block).copy_(bytes.narrow(0, block, block));
  swapped.narrow(0, block, block).copy_(bytes.narrow(0, 0, block));
  EXPECT_NE(hash_values(swapped), before);
}

TEST(ValueHash, DoesNotDependOnThreadsOrStrides) {
  const auto values = at::arange(3 << 19).view({3, 1 << 19}).to(at::kFloat);
  const auto expected = hash_values(values);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_EQ(hash_values(values), expected);
  at::set_num_threads(threads);
  EXPECT_EQ(hash_values(values.t().contiguous().t()), expected);
}

TEST(ValueHash, LooksAtBitsAndNotAtNumbers) {
  const auto of = [](double value) { return hash_values(at::full({3}, value)); };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(of(nan), of(nan));
  EXPECT_NE(of(nan), of(-nan));
  EXPECT_NE(of(0.0), of(-0.0));
  EXPECT_NE(of(1.0), hash_values(at::full({3}, std::nextafter(1.0f, 2.0f))));
}

}  // namespace
}  // namespace fullshard::engine
