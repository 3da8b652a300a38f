// SPDX-License-Identifier: Apache-2.0
// The launches behind device_fp8.h, where there is a GPU.
#pragma once

#include "fullshard/ops/products/device_fp8.h"

namespace fullshard::ops {

void launch_largest(const at::Tensor& parts, bool joins, const at::Tensor& matrix);
// Either target may have no values; the factor is of whichever has some.
void launch_to_fp8(const Fp8Operand& rows, const Fp8Operand& turned, const at::Tensor& matrix,
                   const at::Tensor& largest, Fp8Format format);
void launch_fp8_product(const at::Tensor& output, const Fp8Operand& left, const Fp8Operand& right,
                        const Fp8ProductTerms& terms);

}  // namespace fullshard::ops
