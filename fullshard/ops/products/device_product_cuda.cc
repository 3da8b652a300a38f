// SPDX-License-Identifier: Apache-2.0
// Products by cuBLAS. It knows columns side by side, we have rows: output^T = right^T * left^T.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>

#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"
#include "fullshard/ops/products/lt_product.h"
#include "fullshard/tensor/operator_watch.h"
#include "fullshard/tensor/pretence.h"

namespace fullshard::ops {
namespace {

// A matrix as cuBLAS sees it; `held` keeps a copy alive where one was needed.
struct Operand {
  at::Tensor held;
  cublasOperation_t operation = CUBLAS_OP_N;
  int64_t leading = 1;
  const void* data() const { return held.const_data_ptr(); }
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

void check_product_shapes(const at::Tensor& output, const at::Tensor& left,
                          const at::Tensor& right) {
  check(left.size(1) == right.size(0) && output.size(0) == left.size(0) &&
            output.size(1) == right.size(1) && (output.stride(1) == 1 || output.size(1) == 1),
        "device_product: [{}, {}] * [{}, {}] into [{}, {}]; the shapes do not fit", left.size(0),
        left.size(1), right.size(0), right.size(1), output.size(0), output.size(1));
}

// Nothing to multiply: cuBLAS need not be asked. True when all is done.
bool is_trivial(const at::Tensor& output, const at::Tensor& left) {
  return output.numel() == 0 || left.size(1) == 0;
}

// The memory of an operand, and how it is taken.
LtMatrix lt_operand(const Operand& operand, const at::Tensor& matrix) {
  const bool is_turned = operand.operation == CUBLAS_OP_T;
  return {.data = operand.data(),
          .type = data_type(matrix),
          .rows = matrix.size(is_turned ? 0 : 1),
          .columns = matrix.size(is_turned ? 1 : 0),
          .leading = operand.leading,
          .operation = operand.operation};
}

LtMatrix lt_rows(const at::Tensor& matrix) {
  return {.data = matrix.const_data_ptr(),
          .type = data_type(matrix),
          .rows = matrix.size(1),
          .columns = matrix.size(0),
          .leading = leading_of(matrix)};
}

LtProduct lt_product(const at::Tensor& output, const Operand& left, const at::Tensor& left_matrix,
                     const Operand& right, const at::Tensor& right_matrix) {
  LtProduct product{.first = lt_operand(right, right_matrix),
                    .second = lt_operand(left, left_matrix),
                    .output = lt_rows(output)};
  const bool is_wide =
      output.scalar_type() == at::kFloat && left_matrix.scalar_type() == at::kFloat;
  if (is_wide && at::globalContext().allowTF32CuBLAS()) {
    product.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  }
  return product;
}

// False when cublasLt has no kernel for it.
bool run_plus(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
              const at::Tensor& bias, const at::Tensor& addend) {
  const auto own_left = operand(left), own_right = operand(right);
  auto product = lt_product(output, own_left, left, own_right, right);
  if (addend.defined()) product.base = lt_rows(addend);
  if (bias.defined()) {
    product.bias = bias.const_data_ptr();
    product.bias_type = data_type(bias);
  }
  return run_lt_product(product, output);
}

// Rows of an output that begin at packs of 16 bytes and end within one, as a head's logits do:
// calls `multiply(first, count)` for the columns in packs and then for the few others. All at once
// they would take the slow kernels of odd sizes, which need several times as long. False: there are
// no such rows.
template <class Multiply>
bool multiply_in_parts(const at::Tensor& output, const at::Tensor& operand,
                       const Multiply& multiply) {
  constexpr int64_t kPackColumns = 8, kFewColumns = 512;
  const int64_t columns = output.size(1), whole = columns / kPackColumns * kPackColumns;
  const bool is_16_bit = output.element_size() == 2 && operand.element_size() == 2;
  const bool begins_at_packs = output.stride(0) % kPackColumns == 0;
  if (!is_16_bit || !begins_at_packs || columns < kFewColumns || whole == columns) return false;
  multiply(0, whole);
  multiply(whole, columns - whole);
  return true;
}

at::Tensor narrowed_columns(const at::Tensor& matrix, int64_t first, int64_t count) {
  return matrix.defined() ? matrix.narrow(-1, first, count) : matrix;
}

}  // namespace

void device_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                    bool accumulate) {
  check_product_shapes(output, left, right);
  if (tensor::is_pretended()) return tensor::note_product(output, left, right);
  if (is_trivial(output, left)) {
    if (!accumulate) output.zero_();
    return;
  }
  const bool is_done = multiply_in_parts(output, left, [&](int64_t first, int64_t count) {
    device_product(output.narrow(1, first, count), left, right.narrow(1, first, count), accumulate);
  });
  if (is_done) return;
  const c10::cuda::CUDAGuard guard(output.device());
  const auto own_left = operand(left), own_right = operand(right);
  auto product = lt_product(output, own_left, left, own_right, right);
  if (accumulate) product.base = product.output;
  if (is_ragged(product) && run_lt_product(product, output)) return;
  const float one = 1, before = accumulate ? 1 : 0;
  // TF32 or not is a mode of the handle.
  TORCH_CUDABLAS_CHECK(cublasGemmEx(
      at::cuda::getCurrentCUDABlasHandle(), own_right.operation, own_left.operation,
      checked_int(output.size(1)), checked_int(output.size(0)), checked_int(left.size(1)), &one,
      own_right.data(), data_type(right), checked_int(own_right.leading), own_left.data(),
      data_type(left), checked_int(own_left.leading), &before, output.mutable_data_ptr(),
      data_type(output), checked_int(leading_of(output)), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void device_product_plus(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                         const at::Tensor& bias, const at::Tensor& addend) {
  if (!bias.defined() && !addend.defined()) return device_product(output, left, right);
  check_product_shapes(output, left, right);
  if (tensor::is_pretended()) return tensor::note_product(output, left, right);
  const bool is_done = multiply_in_parts(output, left, [&](int64_t first, int64_t count) {
    device_product_plus(output.narrow(1, first, count), left, right.narrow(1, first, count),
                        narrowed_columns(bias, first, count),
                        narrowed_columns(addend, first, count));
  });
  if (is_done) return;
  const c10::cuda::CUDAGuard guard(output.device());
  const bool is_dense = !addend.defined() || (addend.stride(1) == 1 && addend.stride(0) > 0);
  const auto base = is_dense ? addend : addend.contiguous();
  if (!is_trivial(output, left) && run_plus(output, left, right, bias, base)) return;
  if (addend.defined()) output.copy_(addend);
  device_product(output, left, right, /*accumulate=*/addend.defined());
  if (bias.defined()) output.add_(bias);
}

}  // namespace fullshard::ops
