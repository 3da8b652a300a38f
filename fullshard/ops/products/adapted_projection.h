// SPDX-License-Identifier: Apache-2.0
// Frozen linear layers with low-rank parts beside them, on a GPU, each in one operator with what
// comes before it: a norm, an activation or nothing. They keep the input, and the narrow rows of
// the adapters. Low-rank parts are added by the products that make them, and weights in 8 bits
// live widened for a product only.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "fullshard/ops/activation.h"
#include "fullshard/ops/norm.h"
#include "fullshard/ops/products/linear_terms.h"
#include "fullshard/ops/products/norm_projection.h"
#include "fullshard/ops/products/result_use.h"

namespace fullshard::ops {

// Whether the operators below take such layers and rows: tensors of one GPU, weights and biases
// frozen, no dropout before an adapter, and a residual (may be undefined) of the output's sizes.
bool adapts_at_once(const at::Tensor& rows, const std::vector<LinearTerms>& layers,
                    const at::Tensor& residual = {});
// The norm is frozen too.
bool adapts_at_once(const at::Tensor& input, const NormTerms& norm,
                    const std::vector<LinearTerms>& layers);

// linear(input, layer, residual); the residual may be undefined.
at::Tensor adapted_linear(const at::Tensor& input, const LinearTerms& layer,
                          const at::Tensor& residual);
// norm_projection(input, norm, layers), packed.
NormProjection adapted_norm_projection(const at::Tensor& input, const NormTerms& norm,
                                       const std::vector<LinearTerms>& layers);
// activated_projection of packed rows.
at::Tensor adapted_activated_projection(const at::Tensor& packed, Activation kind,
                                        const LinearTerms& layer, const at::Tensor& residual,
                                        ResultUse use = ResultUse::values);

}  // namespace fullshard::ops
