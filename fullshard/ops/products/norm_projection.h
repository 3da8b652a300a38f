// SPDX-License-Identifier: Apache-2.0
// Norm and linear layers in one operator that keeps the input alone.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear_terms.h"
#include "fullshard/ops/products/projected.h"

namespace fullshard::ops {

struct NormProjection {
  Projected projected;
  // The input once more, for the sum at the end of the branch: taken from here, its gradient is
  // added where the norm's is made, and not in a pass of its own.
  at::Tensor residual;
};

// linear(norm(input), weight, bias) for every weight; a bias may be undefined, and no biases at all
// are as many undefined ones. On the CPU these are those operators. On a GPU the normalised rows
// live for the product only: backward makes them again from the input and two numbers per row.
// Weights that are neighbours in memory, and gradient sinks that are, take one product.
NormProjection norm_projection(const at::Tensor& input, const NormTerms& norm,
                               const std::vector<at::Tensor>& weights,
                               const std::vector<at::Tensor>& biases = {});

// The same by terms. Where one of them is not plain, and a GPU does not take them packed, the
// normalised rows are made once, read by all of them, and results come in parts.
NormProjection norm_projection(const at::Tensor& input, const NormTerms& norm,
                               const std::vector<LinearTerms>& layers);

}  // namespace fullshard::ops
