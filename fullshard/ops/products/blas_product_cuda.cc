// SPDX-License-Identifier: Apache-2.0
// cuBLAS knows columns side by side, we have rows: output^T = right^T * left^T.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>

#include "fullshard/base/error.h"
#include "fullshard/ops/products/blas_product.h"
#include "fullshard/ops/products/lt_product.h"

namespace fullshard::ops {
namespace {

// A matrix as cuBLAS sees it; `held` keeps a copy alive where one was needed.
struct Operand {
  at::Tensor held;
  cublasOperation_t operation = CUBLAS_OP_N;
  int64_t leading = 1;
};

Operand operand(const at::Tensor& matrix) {
  const int64_t rows = matrix.size(0), columns = matrix.size(1);
  const bool rows_are_dense = matrix.stride(1) == 1 || columns == 1;
  const bool columns_are_dense = matrix.stride(0) == 1 || rows == 1;
  if (rows_are_dense && (matrix.stride(0) >= columns || rows == 1)) {
    return {matrix, CUBLAS_OP_N, std::max({matrix.stride(0), columns, int64_t{1}})};
  }
  if (columns_are_dense && (matrix.stride(1) >= rows || columns == 1)) {
    return {matrix, CUBLAS_OP_T, std::max({matrix.stride(1), rows, int64_t{1}})};
  }
  return {matrix.contiguous(), CUBLAS_OP_N, std::max<int64_t>(columns, 1)};
}

cudaDataType_t data_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat ? CUDA_R_32F : CUDA_R_16BF;
}

int64_t leading_of(const at::Tensor& output) {
  return std::max({output.stride(0), output.size(1), int64_t{1}});
}

int checked_int(int64_t value) {
  check(value <= INT32_MAX, "device_product: a dimension of {}; at most {} are supported", value,
        INT32_MAX);
  return static_cast<int>(value);
}

// The memory of an operand, and how it is taken.
LtMatrix lt_operand(const tensor::KernelLaunch& launch, const Operand& operand,
                    const at::Tensor& matrix) {
  const bool is_turned = operand.operation == CUBLAS_OP_T;
  return {.data = launch.read(operand.held),
          .type = data_type(matrix),
          .rows = matrix.size(is_turned ? 0 : 1),
          .columns = matrix.size(is_turned ? 1 : 0),
          .leading = operand.leading,
          .operation = operand.operation};
}

LtMatrix lt_rows(const tensor::KernelLaunch& launch, const at::Tensor& matrix) {
  return {.data = launch.read(matrix),
          .type = data_type(matrix),
          .rows = matrix.size(1),
          .columns = matrix.size(0),
          .leading = leading_of(matrix)};
}

LtProduct lt_product(const tensor::KernelLaunch& launch, const at::Tensor& output,
                     const Operand& left, const at::Tensor& left_matrix, const Operand& right,
                     const at::Tensor& right_matrix) {
  LtProduct product{.first = lt_operand(launch, right, right_matrix),
                    .second = lt_operand(launch, left, left_matrix),
                    .output = lt_rows(launch, output)};
  product.output.data = launch.write(output);
  const bool is_wide =
      output.scalar_type() == at::kFloat && left_matrix.scalar_type() == at::kFloat;
  if (is_wide && at::globalContext().allowTF32CuBLAS()) {
    product.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  return product;
}

}  // namespace

void blas_product(const tensor::KernelLaunch& launch, const at::Tensor& output,
                  const at::Tensor& left, const at::Tensor& right, bool accumulate) {
  const auto own_left = operand(left), own_right = operand(right);
  auto product = lt_product(launch, output, own_left, left, own_right, right);
  if (accumulate) product.base = product.output;
  if (is_ragged(product) && run_lt_product(launch, product, output)) return;
  const float one = 1, before = accumulate ? 1 : 0;
  // TF32 or not is a mode of the handle.
  TORCH_CUDABLAS_CHECK(
      cublasGemmEx(at::cuda::getCurrentCUDABlasHandle(), own_right.operation, own_left.operation,
                   checked_int(output.size(1)), checked_int(output.size(0)),
                   checked_int(left.size(1)), &one, launch.read(own_right.held), data_type(right),
                   checked_int(own_right.leading), launch.read(own_left.held), data_type(left),
                   checked_int(own_left.leading), &before, launch.write(output), data_type(output),
                   checked_int(leading_of(output)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

bool blas_product_plus(const tensor::KernelLaunch& launch, const at::Tensor& output,
                       const at::Tensor& left, const at::Tensor& right, const at::Tensor& bias,
                       const at::Tensor& addend) {
  const auto own_left = operand(left), own_right = operand(right);
  auto product = lt_product(launch, output, own_left, left, own_right, right);
  if (addend.defined()) product.base = lt_rows(launch, addend);
  if (bias.defined()) {
    product.bias = launch.read(bias);
    product.bias_type = data_type(bias);
  }
  return run_lt_product(launch, product, output);
}

}  // namespace fullshard::ops
