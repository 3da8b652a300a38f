// SPDX-License-Identifier: Apache-2.0
// Linear layers that read the same rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/ops/products/linear_terms.h"

namespace fullshard::ops {

struct SharedRows {
  std::vector<at::Tensor> parts;  // a result per layer
  // The input once more, for the sum at the end of the branch: taken from here, its gradient is
  // added by a product of backward, and not in a pass of its own.
  at::Tensor residual;
};

// linear(input, layer) for every layer. On a GPU the gradients of the input, one from each, are
// added by the products that make them; elsewhere, and where a layer is not plain, these are those
// operators.
SharedRows shared_rows(const at::Tensor& input, const std::vector<LinearTerms>& layers);

}  // namespace fullshard::ops
