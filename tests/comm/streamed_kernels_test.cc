// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/streamed_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "fullshard/comm/ordered_sum_kernels.h"

namespace fullshard::kernels {
namespace {

constexpr int64_t kTurn = 64 << 10;  // elements; longer ranges take turns, the rest goes alone

std::vector<float> random_values(int64_t numel, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> values(numel);
  for (auto& value : values) value = normal(generator);
  return values;
}

TEST(StreamedKernels, CopyEveryByteAndNoOther) {
  const auto from = random_values(3 * kTurn, 1);
  const auto* bytes = reinterpret_cast<const std::byte*>(from.data());
  for (const int64_t size : {0, 1, 63, 4 * 65'536 + 64, 2 * 4 * 65'536 + 77}) {
    for (const int64_t offset : {0, 1, 32, 63}) {
      std::vector<std::byte> to(size + 200, std::byte{9});
      streamed_copy(to.data() + offset, bytes + 5, size);
      EXPECT_EQ(std::memcmp(to.data() + offset, bytes + 5, size), 0) << size << " at " << offset;
      for (int64_t i = 0; i < offset; ++i) ASSERT_EQ(to[i], std::byte{9});
      for (int64_t i = offset + size; i < size + 200; ++i) ASSERT_EQ(to[i], std::byte{9});
    }
  }
}

TEST(StreamedKernels, SumWithTheBitsOfThePlainSum) {
  const auto a = random_values(3 * kTurn, 2), b = random_values(3 * kTurn, 3);
  for (const int64_t numel : {int64_t{0}, int64_t{15}, kTurn + 16, 2 * kTurn + 1001}) {
    for (const int64_t offset : {0, 1, 15}) {
      std::vector<float> expected(numel + 32, 7), found(numel + 32, 7);
      sum_of_two(expected.data() + offset, a.data() + 3, b.data(), 1.0f / 3, numel);
      streamed_sum_of_two(found.data() + offset, a.data() + 3, b.data(), 1.0f / 3, numel);
      EXPECT_EQ(found, expected) << numel << " at " << offset;
    }
  }
}

TEST(StreamedKernels, SumIntoAllOutputsWithTheBitsOfThePlainSum) {
  for (const int64_t numel : {int64_t{0}, int64_t{15}, kTurn + 16, 2 * kTurn + 1001}) {
    for (const int num_rows : {2, 4}) {
      ASSERT_TRUE(can_sum_into_all(num_rows));
      std::vector<std::vector<float>> values, found(num_rows, std::vector<float>(numel));
      std::vector<const float*> rows;
      std::vector<float*> outputs, own_rows;
      for (int row = 0; row < num_rows; ++row) values.push_back(random_values(numel, 4 + row));
      for (int row = 0; row < num_rows; ++row) {
        rows.push_back(values[row].data());
        own_rows.push_back(values[row].data());
        outputs.push_back(found[row].data());
      }
      std::vector<float> expected(numel);
      if (num_rows == 2) sum_of_two(expected.data(), rows[0], rows[1], 1.0f / 3, numel);
      if (num_rows == 4) sum_of_four(expected.data(), rows.data(), 1.0f / 3, numel);
      sum_into_all(outputs, rows, 1.0f / 3, numel);
      for (const auto& output : found) EXPECT_TRUE(output == expected) << numel;
      sum_into_all(own_rows, rows, 1.0f / 3, numel);
      for (const auto& row : values) EXPECT_TRUE(row == expected) << numel << " in place";
    }
  }
  EXPECT_FALSE(can_sum_into_all(3));
}

}  // namespace
}  // namespace fullshard::kernels
