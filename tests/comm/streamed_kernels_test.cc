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

TEST(StreamedKernels, SumTwoRowsIntoTwoPlacesWithTheSameBits) {
  for (const int64_t numel : {int64_t{0}, int64_t{15}, kTurn + 16, 2 * kTurn + 1001}) {
    auto a = random_values(numel, 4), b = random_values(numel, 5);
    std::vector<float> expected(numel), first(numel), second(numel);
    sum_of_two(expected.data(), a.data(), b.data(), 0.5f, numel);
    sum_of_two_into_two(first.data(), second.data(), a.data(), b.data(), 0.5f, numel);
    EXPECT_TRUE(first == expected && second == expected) << numel;
    sum_of_two_into_two(a.data(), b.data(), a.data(), b.data(), 0.5f, numel);
    EXPECT_TRUE(a == expected && b == expected) << numel << " in place";
  }
}

}  // namespace
}  // namespace fullshard::kernels
