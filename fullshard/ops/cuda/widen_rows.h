// SPDX-License-Identifier: Apache-2.0
// Rows of 8-bit integers with a factor each, as the numbers that they stand for.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

// output[row][column] = values[row][column] * scales[row], multiplied in fp32. Rows lie side by
// side.
struct WidenedRows {
  KernelDtype dtype;  // of the output
  int64_t num_rows;
  int64_t width;
  void* output;
  const int8_t* values;
  const float* scales;
};

void widen_rows(const WidenedRows& rows, tensor::DeviceStream stream);

}  // namespace fullshard::ops
