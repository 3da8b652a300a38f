// SPDX-License-Identifier: Apache-2.0
// Pointwise functions of feed-forward blocks, plain or gated, over rows.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/element_dropout.h"
#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

enum class RowActivation { gelu, gelu_tanh, relu, silu };

// A row of `width` results comes from a row of `input`; when `up` is given, its elements are
// multiplied with the activated ones. Both have rows `stride` elements apart: gate and up may be
// the halves of one row.
struct ActivationRows {
  KernelDtype dtype;
  RowActivation kind;
  int64_t num_rows;
  int64_t width;
  const void* input;
  const void* up;  // null: not gated
  int64_t stride;
  ElementDropout dropout = {};  // of the results
};

// `output`: rows side by side. `largest` gets the largest magnitude of what is written
// (largest_parts.h); null: not wanted.
void activate_rows(void* output, const ActivationRows& rows, float* largest,
                   tensor::DeviceStream stream);

struct ActivationGradientRows {
  const void* output_gradient;  // rows side by side
  void* input_gradient;         // rows `gradient_stride` apart
  void* up_gradient;            // as that; only when gated
  int64_t gradient_stride;
  void* output;    // gets the results once more; null when not wanted; may be output_gradient
  float* largest;  // of both gradients that are written
};

void activate_gradient_rows(const ActivationGradientRows& gradients, const ActivationRows& rows,
                            tensor::DeviceStream stream);

}  // namespace fullshard::ops
