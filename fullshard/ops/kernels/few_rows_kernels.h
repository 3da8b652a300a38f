// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with few rows of inputs.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// output[m][n] = bias[n] + the products of inputs[m] and weight[n], for n in [begin, end). Inputs
// are [num_inputs, width], the weight is [.., width], the output [num_inputs, num_outputs]; `bias`
// may be null. Each row of the weight is read from memory once; the order of a sum does not depend
// on the number of inputs.
struct FewRowsProduct {
  float* output = nullptr;
  int64_t num_outputs = 0;
  const float* inputs = nullptr;
  int64_t num_inputs = 0;
  int64_t width = 0;
  const float* weight = nullptr;
  const float* bias = nullptr;
};

void multiply_few_rows(const FewRowsProduct& product, int64_t begin, int64_t end);

}  // namespace fullshard::ops
