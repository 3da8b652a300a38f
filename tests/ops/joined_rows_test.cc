// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/joined_rows.h"

#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace fullshard::ops {
namespace {

// Rows [begin, end) of a flat buffer of width 4.
struct Buffer {
  at::Tensor flat = at::randn({10, 4});
  at::Tensor rows(int64_t begin, int64_t end) const { return flat.narrow(0, begin, end - begin); }
};

TEST(JoinedRows, TakeNeighboursAsOneMatrix) {
  const Buffer buffer;
  const auto joined = joined_rows({buffer.rows(1, 3), buffer.rows(3, 4), buffer.rows(4, 9)});
  ASSERT_TRUE(joined.defined());
  EXPECT_TRUE(at::equal(joined, buffer.rows(1, 9)));
  EXPECT_EQ(joined.const_data_ptr(), buffer.rows(1, 9).const_data_ptr());
}

TEST(JoinedRows, AreOneMatrixItselfWhenThereIsOnlyOne) {
  const Buffer buffer;
  const auto parameter = buffer.rows(2, 5).clone().requires_grad_();
  const auto joined = joined_rows({parameter});
  EXPECT_EQ(joined.const_data_ptr(), parameter.const_data_ptr());
  EXPECT_FALSE(joined.requires_grad());
}

TEST(JoinedRows, AreUndefinedForAnythingElse) {
  const Buffer buffer;
  const auto first = buffer.rows(0, 2);
  EXPECT_FALSE(joined_rows({}).defined());
  EXPECT_FALSE(joined_rows({first, buffer.rows(3, 4)}).defined()) << "a gap";
  EXPECT_FALSE(joined_rows({buffer.rows(2, 4), first}).defined()) << "the wrong order";
  EXPECT_FALSE(joined_rows({first, at::Tensor()}).defined());
  EXPECT_FALSE(joined_rows({first, buffer.rows(2, 4).view({4, 2})}).defined()) << "another width";
  EXPECT_FALSE(joined_rows({first, buffer.rows(2, 4).view(at::kInt)}).defined()) << "another dtype";
  EXPECT_FALSE(joined_rows({first.t(), buffer.rows(2, 4).t()}).defined()) << "columns";
}

}  // namespace
}  // namespace fullshard::ops
