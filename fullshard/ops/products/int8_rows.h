// SPDX-License-Identifier: Apache-2.0
// Frozen weights in 8 bits: integers from -127 to 127, and a factor in fp32 for each row.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::ops {

struct Int8Rows {
  at::Tensor values;  // int8, as the matrix
  at::Tensor scales;  // fp32 [rows]: the largest magnitude of a row / 127; 1 of a row of zeros
};

// Rounded to nearest, ties to even. A row with a value that is not finite is an error.
Int8Rows int8_rows(const at::Tensor& matrix);
// Its scales alone.
at::Tensor int8_scales(const at::Tensor& matrix);
// values * scales, multiplied in fp32 and rounded to the dtype of `wide`.
void widen_rows_into(at::Tensor wide, const at::Tensor& values, const at::Tensor& scales);
// The same in a tensor of its own.
at::Tensor widened_rows(const at::Tensor& values, const at::Tensor& scales, at::ScalarType dtype);

// residual + linear(input, widened_rows(…), bias); bias and residual may be undefined. The widened
// weight, in the input's dtype, lives for the product only: backward makes it again, and keeps no
// input. Weight and scales have no gradients.
at::Tensor int8_linear(const at::Tensor& input, const at::Tensor& values, const at::Tensor& scales,
                       const at::Tensor& bias, const at::Tensor& residual);

}  // namespace fullshard::ops
