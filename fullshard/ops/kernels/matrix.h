// SPDX-License-Identifier: Apache-2.0
// Rows of features, whatever the dimensions before them: the products of ops/ know matrices only.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::ops {

inline at::Tensor as_matrix(const at::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)});
}

}  // namespace fullshard::ops
