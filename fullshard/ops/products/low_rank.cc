// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/products/low_rank.h"

#include "fullshard/ops/dropout.h"
#include "fullshard/ops/products/adapted_projection.h"
#include "fullshard/ops/products/int8_rows.h"
#include "fullshard/ops/products/linear.h"

namespace fullshard {
namespace ops {

// The scale goes to the narrowest of the products, and the last one adds to what there is.
at::Tensor linear_by(const PlainLinear& multiply, const at::Tensor& input, const LinearTerms& terms,
                     const at::Tensor& residual) {
  const bool is_int8 = terms.row_scales.defined();
  const auto base = is_int8
                        ? int8_linear(input, terms.weight, terms.row_scales, terms.bias, residual)
                        : multiply(input, terms.weight, terms.bias, residual);
  const LowRank& part = terms.low_rank;
  if (!part.a.defined()) return base;
  const auto seen = dropped(input, part.dropout);
  const auto narrow = multiply(seen, part.a, {}, {});
  return multiply(part.scale == 1 ? narrow : narrow * part.scale, part.b, {}, base);
}

}  // namespace ops

at::Tensor linear(const at::Tensor& input, const LinearTerms& terms, const at::Tensor& residual) {
  if (terms.is_plain()) return linear(input, terms.weight, terms.bias, residual);
  if (ops::adapts_at_once(input, {terms}, residual)) {
    return ops::adapted_linear(input, terms, residual);
  }
  return ops::linear_by([](const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& added) { return linear(rows, weight, bias, added); },
                        input, terms, residual);
}

}  // namespace fullshard
