// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of rows of logits, which become their own gradient.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

struct EntropyRows {
  KernelDtype dtype;
  void* logits;
  float* losses;
  const int64_t* labels;
  int64_t num_rows;
  int64_t vocabulary;
  int64_t row_stride;  // between the rows of logits, at least vocabulary
  int64_t ignore_index;
  float smoothing;
  bool wants_gradient;
};

// The loss of every row, 0 where the label is the ignore index. When the gradient is wanted the
// logits are overwritten with it: softmax minus the target distribution, zeros where the label is
// ignored. What lies between the rows is left alone. A label outside the vocabulary gives NaN: the
// host cannot look at it without waiting, and a NaN is seen by everybody.
void entropy_rows(const EntropyRows& rows, tensor::DeviceStream stream);

}  // namespace fullshard::ops
