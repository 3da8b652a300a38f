// SPDX-License-Identifier: Apache-2.0
// One product of matrices on a device, by cuBLAS; device_operators.h is what callers use, and says
// what the operands are. Shapes are checked, and nothing is empty. Without CUDA libtorch computes
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {

void blas_product(const tensor::KernelLaunch& launch, const at::Tensor& output,
                  const at::Tensor& left, const at::Tensor& right, bool accumulate);

// False when there is no kernel for it, and nothing was done.
bool blas_product_plus(const tensor::KernelLaunch& launch, const at::Tensor& output,
                       const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                       const at::Tensor& addend);

}  // namespace fullshard::ops
