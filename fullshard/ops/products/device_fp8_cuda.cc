// SPDX-License-Identifier: Apache-2.0
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "fullshard/base/error.h"
#include "fullshard/ops/cuda/fp8_rows.h"
#include "fullshard/ops/products/device_fp8.h"
#include "fullshard/ops/products/device_fp8_kernels.h"
#include "fullshard/ops/products/lt_product.h"

namespace fullshard::ops {
namespace {

cudaDataType_t fp8_type(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat8_e4m3fn ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// Rows [R, K] are K x R to cublasLt.
LtMatrix lt_fp8(const Fp8Operand& operand, cublasOperation_t operation) {
  return {.data = operand.values.const_data_ptr(),
          .type = fp8_type(operand.values),
          .rows = operand.values.size(1),
          .columns = operand.values.size(0),
          .leading = operand.values.stride(0),
          .operation = operation,
          .factor = operand.factor.const_data_ptr<float>()};
}

LtMatrix lt_wide(const at::Tensor& matrix) {
  return {.data = matrix.const_data_ptr(),
          .type = matrix.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF,
          .rows = matrix.size(1),
          .columns = matrix.size(0),
          .leading = matrix.stride(0)};
}

}  // namespace

void launch_largest(const at::Tensor& parts, bool joins, const at::Tensor& matrix) {
  const c10::cuda::CUDAGuard guard(matrix.device());
  largest_values(parts.mutable_data_ptr<float>(), joins, matrix.const_data_ptr(), matrix.numel(),
                 c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void launch_to_fp8(const Fp8Operand& rows, const Fp8Operand& turned, const at::Tensor& matrix,
                   const at::Tensor& largest, Fp8Format format) {
  const c10::cuda::CUDAGuard guard(matrix.device());
  const auto& factor = rows.factor.defined() ? rows.factor : turned.factor;
  Fp8Targets targets{.factor = factor.mutable_data_ptr<float>()};
  if (rows.values.defined()) targets.rows = rows.values.mutable_data_ptr();
  if (turned.values.defined()) {
    targets.turned = turned.values.mutable_data_ptr();
    targets.turned_stride = turned.values.stride(0);
    targets.turned_length = turned.values.size(1);
  }
  to_fp8_rows(targets,
              {.values = matrix.const_data_ptr(),
               .num_rows = matrix.size(0),
               .width = matrix.size(1),
               .parts = largest.const_data_ptr<float>(),
               .kind = format == Fp8Format::e4m3 ? Fp8Kind::e4m3 : Fp8Kind::e5m2},
              c10::cuda::getCurrentCUDAStream().stream());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}

void launch_fp8_product(const at::Tensor& output, const Fp8Operand& left, const Fp8Operand& right,
                        const Fp8ProductTerms& terms) {
  const c10::cuda::CUDAGuard guard(output.device());
  LtProduct product{.first = lt_fp8(right, CUBLAS_OP_T),
                    .second = lt_fp8(left, CUBLAS_OP_N),
                    .output = lt_wide(output),
                    .is_fast_sum = terms.sums_fast};
  if (terms.accumulate) product.base = product.output;
  if (terms.addend.defined()) product.base = lt_wide(terms.addend);
  if (terms.bias.defined()) product.bias = terms.bias.const_data_ptr();
  check(run_lt_product(product, output),
        "fp8: cublasLt has no kernel for [{}, {}] * [{}, {}]^T; use bf16 for this model",
        left.values.size(0), left.values.size(1), right.values.size(0), right.values.size(1));
}

}  // namespace fullshard::ops
