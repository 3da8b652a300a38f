// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/grad_mode.h>
#include <ATen/ops/mm.h>

#include "fullshard/ops/products/blas_product.h"

namespace fullshard::ops {

// Operands of 16 bits are added up in fp32, as the tensor cores do.
void blas_product(const tensor::KernelLaunch&, const at::Tensor& output, const at::Tensor& left,
                  const at::Tensor& right, bool accumulate) {
  const at::NoGradGuard no_grad;
  const auto product = at::mm(left.to(at::kFloat), right.to(at::kFloat));
  if (accumulate) {
    output.add_(product);
  } else {
    output.copy_(product);
  }
}

bool blas_product_plus(const tensor::KernelLaunch&, const at::Tensor&, const at::Tensor&,
                       const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  return false;
}

}  // namespace fullshard::ops
