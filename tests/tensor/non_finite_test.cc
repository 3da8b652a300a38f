// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/non_finite.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

namespace fullshard::tensor {
namespace {

TEST(NonFinite, IsFoundAtEveryPlaceAndInEveryDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    auto values = at::randn({40'001}).to(dtype);
    EXPECT_FALSE(has_non_finite(values));
    for (const int64_t place : {0, 17, 16'383, 16'384, 40'000}) {
      for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        auto copy = values.clone();
        copy.select(0, place).fill_(bad);
        EXPECT_TRUE(has_non_finite(copy)) << dtype << " " << place << " " << bad;
      }
    }
  }
}

TEST(NonFinite, TheLargestFiniteValuesAreNone) {
  EXPECT_FALSE(has_non_finite(at::full({9}, 65504.0, at::kHalf)));
  EXPECT_FALSE(has_non_finite(at::full({9}, 3.3e38, at::kBFloat16)));
  EXPECT_FALSE(has_non_finite(at::full({9}, 3.4e38, at::kFloat)));
}

TEST(NonFinite, StridedTensorsAreReadWhereTheirElementsAre) {
  auto values = at::zeros({6, 6});
  values.select(1, 3).fill_(INFINITY);
  EXPECT_TRUE(has_non_finite(values.t()));
  EXPECT_TRUE(has_non_finite(values.slice(1, 2, 4)));
  EXPECT_FALSE(has_non_finite(values.slice(1, 0, 3)));
}

TEST(NonFinite, IntegersAndNothingAreFinite) {
  EXPECT_FALSE(has_non_finite(at::arange(10)));
  EXPECT_FALSE(has_non_finite(at::zeros({0})));
  EXPECT_FALSE(has_non_finite(at::Tensor()));
}

}  // namespace
}  // namespace fullshard::tensor
