// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/convert_kernels.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace fullshard::formats {
namespace {

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong,
                                     at::kInt,    at::kShort, at::kChar, at::kByte,     at::kBool};

void expect_as_torch(const at::Tensor& values, at::ScalarType dtype) {
  const at::Tensor found = at::empty({values.numel()}, dtype);
  convert_elements(values, found);
  const at::Tensor expected = values.to(dtype);
  EXPECT_EQ(std::memcmp(found.data_ptr(), expected.data_ptr(), expected.nbytes()), 0)
      << values.scalar_type() << " to " << dtype;
}

// Bit for bit, values that every type can hold in some way.
TEST(ConvertElements, RoundsAsTorchDoes) {
  const at::Tensor values = at::arange(0, 1000).to(at::kDouble) / 8;  // 0 to 124.875
  for (const auto from : kTypes) {
    for (const auto to : kTypes) expect_as_torch(values.to(from), to);
  }
}

TEST(ConvertElements, KeepsWhatIsHardForFloats) {
  at::Tensor values = at::empty({1 << 16});
  auto* data = values.data_ptr<float>();
  uint32_t bits = 1;
  for (int64_t i = 0; i < values.numel(); ++i) {
    bits = bits * 1664525 + 1013904223;
    std::memcpy(data + i, &bits, sizeof bits);
    if (std::isnan(data[i])) data[i] = 0;  // which of the NaNs it becomes is open
  }
  const float hard[] = {0.0F,     -0.0F,    INFINITY, -INFINITY, 65504.0F,
                        65519.9F, 65520.0F, 6e-8F,    2e-8F,     1e-45F};
  std::memcpy(data, hard, sizeof hard);
  for (const auto to : {at::kHalf, at::kBFloat16, at::kDouble}) expect_as_torch(values, to);
  for (const auto from : {at::kHalf, at::kBFloat16, at::kDouble}) {
    expect_as_torch(values.to(from), at::kFloat);
  }
  const at::Tensor nan = at::full({3}, NAN);
  const at::Tensor half = at::zeros({3}, at::kHalf);
  convert_elements(nan, half);
  EXPECT_TRUE(half.isnan().all().item<bool>());
}

}  // namespace
}  // namespace fullshard::formats
