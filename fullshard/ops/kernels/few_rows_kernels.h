// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with few rows of inputs.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// output[m][n] = bias[n] + the products of inputs[m] and weight[n], for n in [begin, end). Inputs
// are fp32, [num_inputs, width]; the weight is [.., width] and the output [num_inputs,
// num_outputs], both of Stored. `bias` may be null. Each row of the weight is read from memory
// once; sums are in fp32, in an order that does not depend on the number of inputs.
template <class Stored>
struct FewRowsProduct {
  Stored* output = nullptr;
  int64_t num_outputs = 0;
  const float* inputs = nullptr;
  int64_t num_inputs = 0;
  int64_t width = 0;
  const Stored* weight = nullptr;
  const Stored* bias = nullptr;
};

template <class Stored>
void multiply_few_rows(const FewRowsProduct<Stored>& product, int64_t begin, int64_t end);

}  // namespace fullshard::ops
