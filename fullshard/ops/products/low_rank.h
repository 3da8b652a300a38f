// SPDX-License-Identifier: Apache-2.0
// Linear layers by their terms: plain ones, and those with a low-rank part beside a frozen weight.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "fullshard/ops/products/linear_terms.h"

namespace fullshard {

// residual + linear(input, weight, bias) + the low-rank part; the residual may be undefined. With
// plain terms it is linear() itself. A frozen weight gets no gradient, and what only that gradient
// would need is not kept: of the input, what `a` needs, and nothing without an adapter.
at::Tensor linear(const at::Tensor& input, const LinearTerms& terms,
                  const at::Tensor& residual = {});

namespace ops {

// The same with another product of a weight as it is: `multiply(input, weight, bias, residual)`.
using PlainLinear = std::function<at::Tensor(const at::Tensor&, const at::Tensor&,
                                             const at::Tensor&, const at::Tensor&)>;
at::Tensor linear_by(const PlainLinear& multiply, const at::Tensor& input, const LinearTerms& terms,
                     const at::Tensor& residual);

}  // namespace ops
}  // namespace fullshard
