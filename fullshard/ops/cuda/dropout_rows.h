// SPDX-License-Identifier: Apache-2.0
// Dropout and the sum with a residual.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/element_dropout.h"
#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

struct DropoutRows {
  KernelDtype dtype;
  void* output;
  const void* values;
  const void* residual;  // null: none
  int64_t count;
  ElementDropout dropout;
};

void drop_rows(const DropoutRows& rows, tensor::DeviceStream stream);

}  // namespace fullshard::ops
