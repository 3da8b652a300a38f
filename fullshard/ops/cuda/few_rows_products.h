// SPDX-License-Identifier: Apache-2.0
// Products of a few rows of bf16 with weights whose reading is all the work: the weights go from
// memory into the tensor cores' registers, once. A row's result does not depend on the others.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

inline constexpr int kMostWeights = 3;
inline constexpr int64_t kMostRowsOfProducts = 32;
// Widths are multiples of this, and everything begins at a multiple of 16 bytes.
inline constexpr int64_t kProductStep = 32;

struct FewRowsWeight {
  const void* weight;  // [num_outputs, width]
  const void* bias;    // [num_outputs], or null
  int64_t num_outputs;
};

// output [num_rows, all outputs side by side] = input [num_rows, width] * weights, each added what
// there is of bias and residual (of the output's shape). All of them bf16.
struct FewRowsProducts {
  void* output;
  const void* input;
  const void* residual;  // null: none
  int64_t num_rows;
  int64_t width;
  int num_weights;
  FewRowsWeight weights[kMostWeights];
};

void multiply_few_rows(const FewRowsProducts& products, cudaStream_t stream);

}  // namespace fullshard::ops
