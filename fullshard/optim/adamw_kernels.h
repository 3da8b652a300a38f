#pragma once

#include <cstdint>

namespace fullshard {

// Everything of a step that is the same for all elements.
struct AdamWStep {
  float clip = 1;  // the gradient is multiplied with it
  float beta1 = 0;
  float beta2 = 0;
  float decay = 1;            // 1 - lr · weight_decay
  float step_size = 0;        // lr / (1 - beta1^t)
  float root_correction = 1;  // √(1 - beta2^t)
  float epsilon = 0;
};

// One pass over the four arrays; the same bits for every cut and number of threads.
void adamw_step(const AdamWStep& step, float* parameters, const float* gradients, float* moments,
                float* variances, int64_t numel);

}  // namespace fullshard
