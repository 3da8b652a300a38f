// SPDX-License-Identifier: Apache-2.0
// The product of two 8-bit matrices, which cublasLt computes; device_fp8.h is what callers use.
#pragma once

#include "fullshard/ops/products/device_fp8.h"
#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {

// As device_fp8_product, shapes checked.
void multiply_fp8(const tensor::KernelLaunch& launch, const at::Tensor& output,
                  const Fp8Operand& left, const Fp8Operand& right, const Fp8ProductTerms& terms);

}  // namespace fullshard::ops
