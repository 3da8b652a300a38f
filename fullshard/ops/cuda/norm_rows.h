// SPDX-License-Identifier: Apache-2.0
// RMS norm and layer norm over the rows of a matrix.
#pragma once

#include <cstdint>

#include "fullshard/ops/cuda/kernel_dtype.h"

namespace fullshard::ops {

// Rows of `width` elements side by side; all of one dtype, statistics in fp32.
struct NormRows {
  KernelDtype dtype;
  int64_t num_rows;
  int64_t width;
  const void* input;
  const void* weight;
  const void* bias;  // layer norm only; may be null
  bool centred;      // layer norm; else RMS norm
  float* mean;       // of every row; layer norm only
  float* inverse;    // 1 / sqrt(variance or mean square + epsilon) of every row
};

// Below, `largest` gets the largest magnitude of what is written (largest_parts.h); null: not
// wanted.

// output = weight * normalised + bias, where RMS norm rounds the normalised values to the dtype
// before the product. Leaves the statistics.
void normalise_rows(void* output, const NormRows& rows, float epsilon, float* largest,
                    tensor::DeviceStream stream);

// The same values from statistics that an earlier call left.
void normalise_rows_again(void* output, const NormRows& rows, tensor::DeviceStream stream);

struct NormGradientRows {
  void* input_gradient;         // may be output_gradient itself
  const void* output_gradient;  // of the normalised rows
  const void* added;            // added to the input's gradient; may be null
  float* weight_partials;       // num_norm_partials (partial_rows.h) x width; null when not wanted
  float* bias_partials;         // as that
  float* largest;               // of input_gradient
};

// The partial sums are ended by sum_partials (column_sums.h).
void norm_gradient_rows(const NormGradientRows& gradients, const NormRows& rows,
                        tensor::DeviceStream stream);

}  // namespace fullshard::ops
