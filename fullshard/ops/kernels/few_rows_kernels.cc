// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/few_rows_kernels.h"

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/vector_lanes.h"

namespace fullshard::ops {
namespace {

constexpr int64_t kInputsAtOnce = 8;  // their sums stay in registers

template <int count>
[[gnu::always_inline]] inline void multiply_some(const FewRowsProduct& product, int64_t row,
                                                 int64_t first) {
  float sums[count];
  dot_products<count>(sums, product.weight + row * product.width,
                      product.inputs + first * product.width, product.width, product.width);
  const float bias = product.bias == nullptr ? 0.0f : product.bias[row];
  for (int i = 0; i < count; ++i) {
    product.output[(first + i) * product.num_outputs + row] = sums[i] + bias;
  }
}

[[gnu::always_inline]] inline void multiply_last(const FewRowsProduct& product, int64_t row,
                                                 int64_t first) {
  switch (product.num_inputs - first) {
    case 1:
      return multiply_some<1>(product, row, first);
    case 2:
      return multiply_some<2>(product, row, first);
    case 3:
      return multiply_some<3>(product, row, first);
    case 4:
      return multiply_some<4>(product, row, first);
    case 5:
      return multiply_some<5>(product, row, first);
    case 6:
      return multiply_some<6>(product, row, first);
    case 7:
      return multiply_some<7>(product, row, first);
    default:
      return;
  }
}

FULLSHARD_VECTORISED void multiply(const FewRowsProduct& product, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    int64_t first = 0;
    for (; first + kInputsAtOnce <= product.num_inputs; first += kInputsAtOnce) {
      multiply_some<kInputsAtOnce>(product, row, first);
    }
    multiply_last(product, row, first);
  }
}

}  // namespace

void multiply_few_rows(const FewRowsProduct& product, int64_t begin, int64_t end) {
  multiply(product, begin, end);
}

}  // namespace fullshard::ops
