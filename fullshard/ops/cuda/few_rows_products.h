// SPDX-License-Identifier: Apache-2.0
// Products of a few rows with weights whose reading is all the work: the weights go from memory
// into registers, once. A row's result does not depend on the others.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/activation_rows.h"

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

// Of the input's rows, before the products; as norm_rows.h has it.
struct FewRowsNorm {
  const void* weight;  // [width]; null: no norm
  const void* bias;    // null: none
  float epsilon;
  bool centred;
};

// Of the sums; with two weights of equal size the first is activated and multiplied with the other.
struct FewRowsActivation {
  bool is_wanted;
  bool is_gated;
  RowActivation kind;
};

// output [num_rows, all outputs side by side] = norm(input [num_rows, width]) * weights, each added
// what there is of bias and residual (of the output's shape), and activated. All of one type.
struct FewRowsProducts {
  void* output;
  const void* input;
  const void* residual;  // null: none
  FewRowsNorm norm;
  FewRowsActivation activation;
  int64_t num_rows;
  int64_t width;
  int num_weights;
  FewRowsWeight weights[kMostWeights];
};

// Whether so many rows may have a norm that is not applied yet: every block norms for itself, so
// for more rows than these, or longer ones, a kernel before it costs less. The bits are the same.
inline constexpr int64_t kMostNormedRows = 4, kLongWidth = 4096;
inline constexpr bool norms_few_rows_on_the_way(int64_t num_rows, int64_t width) {
  return num_rows <= kMostNormedRows && width < kLongWidth;
}
// The products' norm alone: output [num_rows, width]. Of bf16.
void norm_few_rows(void* output, const FewRowsProducts& products, tensor::DeviceStream stream);
void multiply_few_rows(const FewRowsProducts& products, tensor::DeviceStream stream);  // of bf16
// Of fp32; rows are normed already.
void multiply_few_wide_rows(const FewRowsProducts& products, tensor::DeviceStream stream);

}  // namespace fullshard::ops
