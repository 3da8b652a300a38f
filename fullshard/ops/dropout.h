// SPDX-License-Identifier: Apache-2.0
// Dropout, and what usually follows it: the sum with a residual.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::ops {

// `values` with each element zeroed with `probability` (of a module that trains; else 0) and the
// others scaled up by 1 / (1 - probability), plus `residual` (of the same sizes, or undefined). On
// a GPU that is one pass, which keeps two numbers for backward instead of a mask.
at::Tensor dropped(const at::Tensor& values, double probability, const at::Tensor& residual = {});

}  // namespace fullshard::ops
