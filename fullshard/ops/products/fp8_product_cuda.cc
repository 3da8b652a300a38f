// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/error.h"
#include "fullshard/ops/products/fp8_product.h"
#include "fullshard/ops/products/lt_product.h"

namespace fullshard::ops {
namespace {

cudaDataType_t fp8_type(const at::Tensor& values) {
  return values.scalar_type() == at::kFloat8_e4m3fn ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

// Rows [R, K] are K x R to cublasLt.
LtMatrix lt_fp8(const tensor::KernelLaunch& launch, const Fp8Operand& operand,
                cublasOperation_t operation) {
  return {.data = launch.read(operand.values),
          .type = fp8_type(operand.values),
          .rows = operand.values.size(1),
          .columns = operand.values.size(0),
          .leading = operand.values.stride(0),
          .operation = operation,
          .factor = launch.read_as<float>(operand.factor)};
}

LtMatrix lt_wide(const at::Tensor& matrix, const void* data) {
  return {.data = data,
          .type = matrix.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF,
          .rows = matrix.size(1),
          .columns = matrix.size(0),
          .leading = matrix.stride(0)};
}

}  // namespace

void multiply_fp8(const tensor::KernelLaunch& launch, const at::Tensor& output,
                  const Fp8Operand& left, const Fp8Operand& right, const Fp8ProductTerms& terms) {
  LtProduct product{.first = lt_fp8(launch, right, CUBLAS_OP_T),
                    .second = lt_fp8(launch, left, CUBLAS_OP_N),
                    .output = lt_wide(output, launch.write(output)),
                    .is_fast_sum = terms.sums_fast};
  if (terms.accumulate) product.base = product.output;
  if (terms.addend.defined()) product.base = lt_wide(terms.addend, launch.read(terms.addend));
  product.bias = launch.read(terms.bias);
  check(run_lt_product(launch, product, output),
        "fp8: cublasLt has no kernel for [{}, {}] * [{}, {}]^T; use bf16 for this model",
        left.values.size(0), left.values.size(1), right.values.size(0), right.values.size(1));
}

}  // namespace fullshard::ops
