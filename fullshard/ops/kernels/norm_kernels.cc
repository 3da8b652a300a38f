// SPDX-License-Identifier: Apache-2.0
#include "fullshard/ops/kernels/norm_kernels.h"

#include <cmath>

#include "fullshard/base/vectorised.h"
#include "fullshard/ops/kernels/lane_sum.h"
#include "fullshard/ops/kernels/stored_types.h"

namespace fullshard::ops {
namespace {

template <class Stored>
FULLSHARD_VECTORISED void forward_rows(Stored* __restrict output, float* __restrict inverse,
                                       const Stored* __restrict input,
                                       const Stored* __restrict weight, int64_t num_rows,
                                       int64_t width, float epsilon) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const Stored* x = input + row * width;
    Stored* y = output + row * width;
    const float squares = lane_sum(
        width, [&](int64_t i)
                   __attribute__((always_inline)) { return widened(x[i]) * widened(x[i]); });
    const float factor = 1.0f / std::sqrt(squares / static_cast<float>(width) + epsilon);
    inverse[row] = factor;
    for (int64_t i = 0; i < width; ++i) {
      const float normalised = widened(narrowed<Stored>(widened(x[i]) * factor));
      y[i] = narrowed<Stored>(widened(weight[i]) * normalised);
    }
  }
}

// With n = x * inverse: the gradient of x is inverse * (w g - n mean(w g n)), of w the sum of g n.
template <class Stored>
FULLSHARD_VECTORISED void backward_rows(Stored* __restrict input_gradient,
                                        float* __restrict weight_gradient,
                                        const Stored* __restrict output_gradient,
                                        const Stored* __restrict input,
                                        const Stored* __restrict weight,
                                        const float* __restrict inverse, int64_t num_rows,
                                        int64_t width) {
  for (int64_t row = 0; row < num_rows; ++row) {
    const Stored* x = input + row * width;
    const Stored* g = output_gradient + row * width;
    Stored* to = input_gradient + row * width;
    const float factor = inverse[row];
    const float dot = lane_sum(
        width, [&](int64_t i) __attribute__((always_inline)) {
          return widened(weight[i]) * widened(g[i]) * widened(x[i]);
        });
    const float along = dot * factor * factor / static_cast<float>(width);
    for (int64_t i = 0; i < width; ++i) {
      const float across = widened(weight[i]) * widened(g[i]) - widened(x[i]) * along;
      to[i] = narrowed<Stored>(factor * across);
    }
    if (weight_gradient == nullptr) continue;
    for (int64_t i = 0; i < width; ++i) {
      weight_gradient[i] += widened(g[i]) * (widened(x[i]) * factor);
    }
  }
}

}  // namespace

template <class Stored>
void rms_norm_rows(Stored* output, float* inverse, const Stored* input, const Stored* weight,
                   int64_t num_rows, int64_t width, float epsilon) {
  forward_rows(output, inverse, input, weight, num_rows, width, epsilon);
}

template <class Stored>
void rms_norm_gradient_rows(Stored* input_gradient, float* weight_gradient,
                            const Stored* output_gradient, const Stored* input,
                            const Stored* weight, const float* inverse, int64_t num_rows,
                            int64_t width) {
  backward_rows(input_gradient, weight_gradient, output_gradient, input, weight, inverse, num_rows,
                width);
}

template void rms_norm_rows(float*, float*, const float*, const float*, int64_t, int64_t, float);
template void rms_norm_rows(Brain*, float*, const Brain*, const Brain*, int64_t, int64_t, float);
template void rms_norm_gradient_rows(float*, float*, const float*, const float*, const float*,
                                     const float*, int64_t, int64_t);
template void rms_norm_gradient_rows(Brain*, float*, const Brain*, const Brain*, const Brain*,
                                     const float*, int64_t, int64_t);

}  // namespace fullshard::ops
