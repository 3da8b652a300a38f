// SPDX-License-Identifier: Apache-2.0
// Sums over rows, column by column, in an order that depends on the shape only.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

// How many rows of partial sums column_sums wants room for.
int64_t num_partial_rows(int64_t num_rows, int64_t width, KernelDtype dtype);

// target[c] = (accumulate ? target[c] : 0) + sum over r of data[r * row_stride + c].
// `partials`: num_partial_rows x width of fp32.
void column_sums(float* target, bool accumulate, const void* data, KernelDtype dtype,
                 int64_t num_rows, int64_t width, int64_t row_stride, float* partials,
                 cudaStream_t stream);

// The same over contiguous rows of fp32 that a kernel left: no further room is needed.
void sum_partials(float* target, bool accumulate, const float* partials, int64_t num_rows,
                  int64_t width, cudaStream_t stream);

}  // namespace fullshard::ops
