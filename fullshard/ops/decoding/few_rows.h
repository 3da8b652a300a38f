// SPDX-License-Identifier: Apache-2.0
// The products of a decoding step, which has one row per sequence: their time is that of reading
// the weights. Without gradients. On the CPU up to kMostFewRows rows of fp32 or bf16 take a kernel
// that reads each weight once, sums in fp32, and whose sums for one row do not depend on the
// others: a sequence gets the same bits in every batch. So do they on a GPU, with sums of its
// own. Anything else is what linear, norm_projection and activated_projection give.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/ops/activation.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear_terms.h"
#include "fullshard/ops/products/projected.h"

namespace fullshard::ops {

inline constexpr int64_t kMostFewRows = 32;

// residual + linear(input, weight, bias); bias and residual may be undefined.
at::Tensor few_rows_linear(const at::Tensor& input, const at::Tensor& weight,
                           const at::Tensor& bias = {}, const at::Tensor& residual = {});

// As norm_projection, without the residual; a bias may be undefined, and there is one per weight.
Projected few_rows_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                   const std::vector<at::Tensor>& weights,
                                   const std::vector<at::Tensor>& biases);

// The same two by terms.
at::Tensor few_rows_linear(const at::Tensor& input, const LinearTerms& layer,
                           const at::Tensor& residual = {});
Projected few_rows_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                   const std::vector<LinearTerms>& layers);

// The layers of a feed-forward block; two of the inner ones are gate and up.
struct FeedForwardLayers {
  std::vector<LinearTerms> inner;
  Activation activation;
  LinearTerms outer;
};

// input + outer * activation(inner * norm(input)).
at::Tensor few_rows_feed_forward(const at::Tensor& input, const NormTerms& norm,
                                 const FeedForwardLayers& layers);

}  // namespace fullshard::ops
