// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/dropout.h"

#include <ATen/Context.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/base/error.h"

namespace fullshard::ops {
namespace {

TEST(Dropped, IsTorchsDropoutAndASumOnTheCpu) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const auto values = at::randn({6, 33}).to(dtype), residual = at::randn({6, 33}).to(dtype);
    at::manual_seed(3);
    const auto found = dropped(values, 0.25, residual), alone = dropped(values, 0.25);
    at::manual_seed(3);
    EXPECT_TRUE(at::equal(found, residual + at::dropout(values, 0.25, true)));
    EXPECT_TRUE(at::equal(alone, at::dropout(values, 0.25, true)));
  }
}

TEST(Dropped, WithoutAProbabilityNothingIsDrawn) {
  const auto values = at::randn({5, 3}), residual = at::randn({5, 3});
  at::manual_seed(5);
  const auto expected = at::randn({4});
  at::manual_seed(5);
  EXPECT_TRUE(dropped(values, 0).is_same(values));
  EXPECT_TRUE(at::equal(dropped(values, 0, residual), residual + values));
  EXPECT_TRUE(at::equal(at::randn({4}), expected));
}

TEST(Dropped, RefusesProbabilitiesAndResidualsThatCannotBe) {
  const auto values = at::ones({2, 3});
  EXPECT_THAT([&] { dropped(values, 1.5); },
              testing::ThrowsMessage<Error>("dropout: the probability is 1.5; expected 0 to 1"));
  EXPECT_THAT([&] { dropped(values, 0.5, at::ones({3})); },
              testing::ThrowsMessage<Error>(
                  "dropout: the values have 6 elements in 2 dimensions, the residual 3 in 1; "
                  "expected the same sizes"));
}

}  // namespace
}  // namespace fullshard::ops
