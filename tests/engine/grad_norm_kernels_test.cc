// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/grad_norm_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace fullshard::engine {
namespace {

std::vector<float> random_values(size_t numel) {
  std::mt19937 generator(3);
  std::normal_distribution<float> normal(0, 1e3f);
  std::vector<float> values(numel);
  for (auto& value : values) value = normal(generator);
  return values;
}

TEST(SquareSum, IsTheSumOfSquares) {
  const auto values = random_values(200'003);
  long double expected = 0;
  for (const float value : values) expected += static_cast<long double>(value) * value;
  const double sum = sum_of_squares(values.data(), static_cast<int64_t>(values.size()));
  EXPECT_NEAR(sum / static_cast<double>(expected), 1.0, 1e-14);
}

TEST(SquareSum, HasTheSameBitsHoweverTheValuesArrive) {
  // Blocks are summed eight, four and one at a time; the last one is not whole.
  const auto values = random_values((8 + 4 + 1) * 65'536 + 5);
  const auto numel = static_cast<int64_t>(values.size());
  const double whole = sum_of_squares(values.data(), numel);
  for (const int64_t step : {1, 7, 16, 1000, 65'535, 65'536, 65'537, 852'000}) {
    SquareSum sum;
    for (int64_t begin = 0; begin < numel; begin += step) {
      sum.add(values.data() + begin, std::min(step, numel - begin));
    }
    EXPECT_EQ(sum.total(), whole) << "in steps of " << step;
  }
}

TEST(SquareSum, CarriesInfinityAndNotANumber) {
  for (const float bad : {INFINITY, NAN}) {
    auto values = random_values(40);
    values[33] = bad;
    EXPECT_FALSE(std::isfinite(sum_of_squares(values.data(), 40)));
  }
}

TEST(SquareSum, OfNothingIsZero) { EXPECT_EQ(sum_of_squares(nullptr, 0), 0.0); }

}  // namespace
}  // namespace fullshard::engine
