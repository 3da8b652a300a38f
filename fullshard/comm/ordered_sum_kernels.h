// SPDX-License-Identifier: Apache-2.0
// The loops of ordered_sum over a block that fits the first-level cache. `Sum` is the dtype of the
// addition, `Row` of an input, `Output` of the result.
#pragma once

#include <cstdint>

namespace fullshard::kernels {

// sum = row
template <class Sum, class Row>
void first_row(Sum* sum, const Row* row, int64_t numel);

// sum = sum + row, or the larger or smaller of both (NaN wins, as in torch)
template <class Sum, class Row>
void add_row(Sum* sum, const Row* row, int64_t numel);
template <class Sum, class Row>
void max_row(Sum* sum, const Row* row, int64_t numel);
template <class Sum, class Row>
void min_row(Sum* sum, const Row* row, int64_t numel);

// output = sum · scale, and in the second form output = output + sum · scale
template <class Output, class Sum>
void write(Output* output, const Sum* sum, Sum scale, int64_t numel);
template <class Output, class Sum>
void write_added(Output* output, const Sum* sum, Sum scale, int64_t numel);

// The whole expression in one loop, for the commonest numbers of ranks. The output may be a row.
void sum_of_two(float* output, const float* a, const float* b, float scale, int64_t numel);
void sum_of_four(float* output, const float* const* rows, float scale, int64_t numel);

}  // namespace fullshard::kernels
