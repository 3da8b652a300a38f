// SPDX-License-Identifier: Apache-2.0
#include "fullshard/stored/blocks/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>
#include <vector>

namespace fullshard::testing {
namespace {

constexpr int64_t kSize = 8192;

TEST(BufferPool, ReservesFromItsSourceInPowersOfTwoAndKeepsThem) {
  std::vector<int64_t> asked;
  stored::BufferPool pool(kSize, [&](int64_t bytes) {
    asked.push_back(bytes / kSize);
    void* memory = std::aligned_alloc(disk::kDirectAlign, static_cast<size_t>(bytes));
    return std::shared_ptr<char>(static_cast<char*>(memory), &std::free);
  });
  pool.reserve(171);
  EXPECT_EQ(asked, (std::vector<int64_t>{64, 64, 32, 8, 2, 1}));
  EXPECT_EQ(pool.bytes(), 171 * kSize);
  std::vector<disk::DirectBuffer> taken;
  std::set<char*> places;
  for (int i = 0; i < 171; ++i) {
    taken.push_back(pool.take());
    std::fill_n(taken.back().data(), kSize, 'x');
    places.insert(taken.back().data());
  }
  EXPECT_EQ(places.size(), 171u);
  EXPECT_EQ(asked.size(), 6u);
  for (auto& buffer : taken) pool.give_back(std::move(buffer));
  pool.reserve(171);
  EXPECT_EQ(asked.size(), 6u);
  EXPECT_EQ(pool.bytes(), 171 * kSize);
}

TEST(BufferPool, WithoutASourceTakesMemoryOnlyWhenItIsNeeded) {
  stored::BufferPool pool(kSize);
  pool.reserve(5);
  EXPECT_EQ(pool.bytes(), 0);
  pool.give_back(pool.take());
  EXPECT_EQ(pool.bytes(), kSize);
}

}  // namespace
}  // namespace fullshard::testing
