#pragma once

#include <cstdint>

#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// Everything of a step that is the same for all elements.
struct AdamWStep {
  double clip = 1;  // the gradient is multiplied with it
  double beta1 = 0;
  double beta2 = 0;
  double decay = 1;            // 1 - lr · weight_decay
  double step_size = 0;        // lr / (1 - beta1^t)
  double root_correction = 1;  // √(1 - beta2^t)
  double epsilon = 0;
  double l2 = 0;  // weight decay that is added to the gradient: plain Adam's
};

// States: moment, variance. The same bits for every cut and number of threads.
void adamw_step(const AdamWStep& step, const PieceElements& piece);
void adamw_step(const AdamWStep& step, float* parameters, const float* gradients, float* moments,
                float* variances, int64_t numel);

}  // namespace fullshard
