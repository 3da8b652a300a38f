// SPDX-License-Identifier: Apache-2.0
// Sums over rows, column by column, in an order that depends on the shape only.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

// target[c] = (accumulate ? target[c] : 0) + sum over r of data[r * row_stride + c].
// `partials`: num_partial_rows (partial_rows.h) x width of fp32.
void column_sums(float* target, bool accumulate, const void* data, KernelDtype dtype,
                 int64_t num_rows, int64_t width, int64_t row_stride, float* partials,
                 tensor::DeviceStream stream);

// Contiguous rows of fp32 that a kernel left, and where their sums go; no target: nobody wants
// them.
struct PartialRows {
  float* target = nullptr;
  bool accumulate = false;
  const float* partials = nullptr;
};

// The same of such rows, of up to two kinds in one launch; no further room is needed.
void sum_partials(const PartialRows& first, const PartialRows& second, int64_t num_rows,
                  int64_t width, tensor::DeviceStream stream);

}  // namespace fullshard::ops
