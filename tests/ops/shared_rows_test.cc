// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/shared_rows.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/products/linear.h"
#include "tests/ops/gradients.h"

namespace fullshard::ops {
namespace {

TEST(SharedRows, AreLinearLayersToTheBitOnTheCpu) {
  const auto inputs = leaves(
      {at::randn({2, 3, 8}), at::randn({5, 8}), at::randn({4, 8}), at::randn({5})}, at::kFloat);
  const auto own = [](const Inputs& in) {
    const auto made = shared_rows(in[0], {{.weight = in[1], .bias = in[3]}, {.weight = in[2]}});
    EXPECT_TRUE(made.residual.is_same(in[0]));
    return at::cat({made.parts[0], made.parts[1], made.residual}, -1);
  };
  const auto apart = [](const Inputs& in) {
    return at::cat({fullshard::linear(in[0], in[1], in[3]), fullshard::linear(in[0], in[2]), in[0]},
                   -1);
  };
  const auto factors = at::randn({2, 3, 17});
  const auto found = run_operator(own, inputs, factors);
  const auto wanted = run_operator(apart, inputs, factors);
  EXPECT_TRUE(at::equal(found.output, wanted.output));
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_TRUE(at::equal(found.gradients[i], wanted.gradients[i])) << "gradient of input " << i;
  }
}

TEST(SharedRows, RefuseNoLayers) {
  try {
    shared_rows(at::randn({2, 3}), {});
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("shared_rows: no layer; give at least one"));
  }
}

}  // namespace
}  // namespace fullshard::ops
