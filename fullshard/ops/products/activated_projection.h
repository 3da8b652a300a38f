// SPDX-License-Identifier: Apache-2.0
// The second half of a feed-forward block in one operator that keeps its input alone.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/ops/activation.h"
#include "fullshard/ops/products/linear_terms.h"
#include "fullshard/ops/products/projected.h"
#include "fullshard/ops/products/result_use.h"

namespace fullshard::ops {

// residual + linear(act(input), weight, bias), where act is the activation, or with twice the
// weight's width of input the gated one: kind(gate) * up of gate | up. bias and residual may be
// undefined. With a probability of `dropout` the activated values are dropped (dropout.h). On the
// CPU these are those operators. On a GPU the activated values live for the
// product only, backward makes them again from the input, and the product itself adds the residual.
at::Tensor activated_projection(const Projected& input, Activation kind, const at::Tensor& weight,
                                const at::Tensor& bias = {}, const at::Tensor& residual = {},
                                ResultUse use = ResultUse::values, double dropout = 0);

// The same by terms. Where they are not plain, and not taken as one (adapted_projection.h), the
// activated values are kept: the adapter needs them.
at::Tensor activated_projection(const Projected& input, Activation kind, const LinearTerms& layer,
                                const at::Tensor& residual = {}, ResultUse use = ResultUse::values,
                                double dropout = 0);

}  // namespace fullshard::ops
