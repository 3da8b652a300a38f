// SPDX-License-Identifier: Apache-2.0
// One product by cublasLt, for CUDA sources only. It knows columns side by side: a matrix of rows
// [M, K] is K x M to it.
#pragma once

#include <ATen/core/Tensor.h>
#include <cublasLt.h>

#include <cstdint>

#include "fullshard/tensor/kernel_launch.h"

namespace fullshard::ops {

// A matrix as it lies in memory, and how it is taken.
struct LtMatrix {
  const void* data = nullptr;
  cudaDataType_t type = CUDA_R_16BF;
  int64_t rows = 0, columns = 0, leading = 0;  // in cublasLt's order: columns are dense
  cublasOperation_t operation = CUBLAS_OP_N;
  const float* factor = nullptr;  // on the device; of 8-bit matrices
};

// output = first * second + bias + base. `base` may be the output itself, which is then added to.
struct LtProduct {
  LtMatrix first, second;
  LtMatrix base{};  // data null: none
  LtMatrix output;  // written through its data
  const void* bias = nullptr;
  cudaDataType_t bias_type = CUDA_R_16BF;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  bool is_fast_sum = false;  // of 8-bit products: fewer bits in the sums of the tensor cores
};

// Whether a dense dimension of an operand ends within a pack of 16 bytes though its columns begin
// at packs: a head's, whose vocabulary is odd. The kernel is then asked for as if it ended at the
// next pack, and checked for what it is: for ragged dimensions cublasLt names kernels that take
// several times as long.
bool is_ragged(const LtProduct& product);

// On the stream of the launch, of whose allocator the workspace is; `like` names the device. False
// when cublasLt has no kernel for it. Which kernel is asked once per shape, alignment and device.
bool run_lt_product(const tensor::KernelLaunch& launch, const LtProduct& product,
                    const at::Tensor& like);

}  // namespace fullshard::ops
