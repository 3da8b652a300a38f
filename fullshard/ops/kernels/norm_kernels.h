// SPDX-License-Identifier: Apache-2.0
// RMS norm on contiguous rows of the CPU. `Stored` is float or Brain; bits do not depend on how
// rows are split between calls.
#pragma once

#include <cstdint>

namespace fullshard::ops {

// Also leaves 1 / sqrt(mean(x^2) + epsilon) of every row in `inverse`.
template <class Stored>
void rms_norm_rows(Stored* output, float* inverse, const Stored* input, const Stored* weight,
                   int64_t num_rows, int64_t width, float epsilon);

// `weight_gradient` [width] gets the sum over these rows added; null when not wanted.
template <class Stored>
void rms_norm_gradient_rows(Stored* input_gradient, float* weight_gradient,
                            const Stored* output_gradient, const Stored* input,
                            const Stored* weight, const float* inverse, int64_t num_rows,
                            int64_t width);

}  // namespace fullshard::ops
