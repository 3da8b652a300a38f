// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/absent_tensor.h"

#include <ATen/ops/empty.h>

namespace fullshard::ops {

at::Tensor empty_if_absent(const at::Tensor& tensor, const at::Tensor& like) {
  return tensor.defined() ? tensor : at::empty({0}, like.options().requires_grad(false));
}

at::Tensor undefined_if_empty(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() > 0 ? tensor : at::Tensor();
}

}  // namespace fullshard::ops
