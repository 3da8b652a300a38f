// SPDX-License-Identifier: Apache-2.0
// Rows of features, whatever the dimensions before them: the products of ops/ know matrices only.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fullshard::ops {

inline int64_t num_rows_of(const at::Tensor& tensor) {
  return tensor.size(-1) == 0 ? 0 : tensor.numel() / tensor.size(-1);
}

inline at::Tensor as_matrix(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

// The tensor's sizes with rows of another width.
inline std::vector<int64_t> sizes_of_width(const at::Tensor& tensor, int64_t width) {
  auto sizes = tensor.sizes().vec();
  sizes.back() = width;
  return sizes;
}

}  // namespace fullshard::ops
