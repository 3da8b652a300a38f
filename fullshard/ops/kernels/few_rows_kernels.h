// SPDX-License-Identifier: Apache-2.0
// Products of a matrix with few rows of inputs, on the CPU. `Stored` is float or Brain; sums are
// fp32, and their order depends neither on the instruction set nor on the number of inputs.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// Inputs in the order in which the product looks at them: column by column in blocks of a few, of
// all inputs side by side. As many elements as the inputs have.
template <class Stored>
void pack_few_rows(float* packed, const Stored* inputs, int64_t num_inputs, int64_t width);

// output[m][n] = bias[n] + the products of inputs[m] and weight[n] + residual[m][n], for n in
// [begin, end). The weight is [.., width], output and residual are [num_inputs, num_outputs]; bias
// and residual may be null. The weight is read from memory once.
template <class Stored>
struct FewRowsProduct {
  Stored* output = nullptr;
  int64_t num_outputs = 0;
  const float* packed = nullptr;
  int64_t num_inputs = 0;
  int64_t width = 0;
  const Stored* weight = nullptr;
  const Stored* bias = nullptr;
  const Stored* residual = nullptr;
};

template <class Stored>
void multiply_few_rows(const FewRowsProduct<Stored>& product, int64_t begin, int64_t end);

enum class InstructionSet { plain, avx2, avx512 };
// The best that this processor has.
InstructionSet best_instruction_set();

// With one that the processor has, for tests.
template <class Stored>
void multiply_few_rows_with(InstructionSet set, const FewRowsProduct<Stored>& product,
                            int64_t begin, int64_t end);

}  // namespace fullshard::ops
