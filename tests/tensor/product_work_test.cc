// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tensor/product_work.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace fullshard::tensor {
namespace {

int64_t work_of(const char* name, const at::Tensor& left, const at::Tensor& right) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  return product_work_bytes(op, {left, right});
}

at::Tensor matrix(at::IntArrayRef sizes, at::ScalarType dtype) {
  return at::empty(sizes, at::TensorOptions(dtype));
}

TEST(ProductWork, OfLargeProductsIsTheSumsInFp32) {
  const auto large = matrix({512, 1024}, at::kBFloat16);
  EXPECT_EQ(work_of("aten::mm", large, matrix({1024, 512}, at::kBFloat16)), 512 * 512 * 4);
}

TEST(ProductWork, OfOtherOperatorsAndNumbersIsNothing) {
  const auto wide = matrix({512, 1024}, at::kFloat);
  EXPECT_EQ(work_of("aten::mm", wide, matrix({1024, 512}, at::kFloat)), 0);
  const auto narrow = matrix({512, 1024}, at::kBFloat16);
  EXPECT_EQ(work_of("aten::matmul", narrow, matrix({1024, 512}, at::kBFloat16)), 0);
  EXPECT_EQ(work_of("aten::mm", matrix({0, 8}, at::kBFloat16), matrix({8, 4}, at::kBFloat16)), 0);
}

// The gradient of a sum is one.
TEST(ProductWork, OfExpandedOperandsIsFoundOut) {
  const auto expanded = matrix({1, 16, 32}, at::kBFloat16).expand({4, 16, 32});
  const auto right = matrix({4, 32, 8}, at::kBFloat16);
  const int64_t first = work_of("aten::bmm", expanded, right);
  EXPECT_GE(first, 0);
  EXPECT_EQ(work_of("aten::bmm", expanded, right), first);
}

TEST(ProductWork, OfMatricesThatDoNotFitIsTheirError) {
  EXPECT_ANY_THROW(
      work_of("aten::mm", matrix({4, 8}, at::kBFloat16), matrix({9, 4}, at::kBFloat16)));
}

}  // namespace
}  // namespace fullshard::tensor
