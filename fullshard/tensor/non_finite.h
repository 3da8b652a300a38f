// SPDX-License-Identifier: Apache-2.0
// Whether a tensor holds infinities or values that are not numbers.
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::tensor {

// Reads the values once, where possible without a temporary tensor. False for integers and for
// undefined or empty tensors.
bool has_non_finite(const at::Tensor& tensor);

}  // namespace fullshard::tensor
