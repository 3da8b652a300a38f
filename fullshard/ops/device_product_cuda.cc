// SPDX-License-Identifier: Apache-2.0
// Products by cuBLAS. It knows columns side by side, we have rows: output^T = right^T * left^T.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cublasLt.h>
#include <cublas_v2.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "fullshard/base/error.h"
#include "fullshard/ops/device_operators.h"
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

template <class Handle, cublasStatus_t (*kDestroy)(Handle)>
struct Destroy {
  void operator()(std::remove_pointer_t<Handle>* handle) const { kDestroy(handle); }
};
using MatmulDescription = std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>,
                                          Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using MatrixLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>,
                                     Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                    Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

MatrixLayout matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns, int64_t leading) {
  cublasLtMatrixLayout_t layout = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatrixLayoutCreate(&layout, type, static_cast<uint64_t>(rows),
                                                  static_cast<uint64_t>(columns), leading));
  return MatrixLayout(layout);
}

// The memory of an operand, not what it stands for.
MatrixLayout operand_layout(const Operand& operand, const at::Tensor& matrix) {
  const bool is_turned = operand.operation == CUBLAS_OP_T;
  return matrix_layout(data_type(matrix), is_turned ? matrix.size(0) : matrix.size(1),
                       is_turned ? matrix.size(1) : matrix.size(0), operand.leading);
}

template <class Value>
void describe(const MatmulDescription& description, cublasLtMatmulDescAttributes_t attribute,
              const Value& value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulDescSetAttribute(description.get(), attribute, &value, sizeof(value)));
}

MatmulDescription matmul_description(const at::Tensor& output, const Operand& left,
                                     const Operand& right, const at::Tensor& bias) {
  const bool is_wide = output.scalar_type() == at::kFloat;
  const bool is_fast = is_wide && at::globalContext().allowTF32CuBLAS();
  cublasLtMatmulDesc_t made = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatmulDescCreate(
      &made, is_fast ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F));
  MatmulDescription description(made);
  describe(description, CUBLASLT_MATMUL_DESC_TRANSA, right.operation);
  describe(description, CUBLASLT_MATMUL_DESC_TRANSB, left.operation);
  if (bias.defined()) {
    describe(description, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.const_data_ptr());
    describe(description, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(bias));
  }
  return description;
}

uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

template <class Value>
void prefer(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const Value& value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)));
}

struct Addresses {
  const void *right, *left, *addend;
  void* output;
};

Preference preference_for(const Addresses& addresses) {
  cublasLtMatmulPreference_t made = nullptr;
  TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceCreate(&made));
  Preference preference(made);
  prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(addresses.right));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(addresses.left));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(addresses.addend));
  prefer(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(addresses.output));
  return preference;
}

// False when cublasLt has no kernel for it.
bool run_lt_product(const at::Tensor& output, const at::Tensor& left, const at::Tensor& right,
                    const at::Tensor& bias, const at::Tensor& addend) {
  const auto own_left = operand(left), own_right = operand(right);
  const auto description = matmul_description(output, own_left, own_right, bias);
  const auto right_layout = operand_layout(own_right, right);
  const auto left_layout = operand_layout(own_left, left);
  const auto type = data_type(output);
  const auto output_layout =
      matrix_layout(type, output.size(1), output.size(0), leading_of(output));
  const auto& base = addend.defined() ? addend : output;
  const auto base_layout = matrix_layout(type, output.size(1), output.size(0), leading_of(base));
  const Addresses addresses{own_right.data(), own_left.data(), base.const_data_ptr(),
                            output.mutable_data_ptr()};
  const auto preference = preference_for(addresses);
  const auto handle = at::cuda::getCurrentCUDABlasLtHandle();
  cublasLtMatmulHeuristicResult_t found = {};
  int num_found = 0;
  const auto status = cublasLtMatmulAlgoGetHeuristic(
      handle, description.get(), right_layout.get(), left_layout.get(), base_layout.get(),
      output_layout.get(), preference.get(), 1, &found, &num_found);
  if (status != CUBLAS_STATUS_SUCCESS || num_found == 0) return false;
  // From the allocator of the stream, which gives it to the next one in line.
  const auto workspace =
      at::empty({static_cast<int64_t>(found.workspaceSize)}, output.options().dtype(at::kByte));
  const float one = 1, zero = 0;
  TORCH_CUDABLAS_CHECK(cublasLtMatmul(
      handle, description.get(), &one, addresses.right, right_layout.get(), addresses.left,
      left_layout.get(), addend.defined() ? &one : &zero, addresses.addend, base_layout.get(),
      addresses.output, output_layout.get(), &found.algo, workspace.mutable_data_ptr(),
      found.workspaceSize, c10::cuda::getCurrentCUDAStream().stream()));
  return true;
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
  const c10::cuda::CUDAGuard guard(output.device());
  const auto own_left = operand(left), own_right = operand(right);
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
  const c10::cuda::CUDAGuard guard(output.device());
  const bool is_dense = !addend.defined() || (addend.stride(1) == 1 && addend.stride(0) > 0);
  const auto base = is_dense ? addend : addend.contiguous();
  if (!is_trivial(output, left) && run_lt_product(output, left, right, bias, base)) return;
  if (addend.defined()) output.copy_(addend);
  device_product(output, left, right, /*accumulate=*/addend.defined());
  if (bias.defined()) output.add_(bias);
}

}  // namespace fullshard::ops
