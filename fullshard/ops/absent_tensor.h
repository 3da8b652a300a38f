// SPDX-License-Identifier: Apache-2.0
// Tensors that may be missing, as arguments of an autograd Function: libtorch 2.11 refuses
// undefined ones there, so an empty one stands for "none".
#pragma once

#include <ATen/core/Tensor.h>

namespace fullshard::ops {

at::Tensor empty_if_absent(const at::Tensor& tensor, const at::Tensor& like);
at::Tensor undefined_if_empty(const at::Tensor& tensor);

}  // namespace fullshard::ops
