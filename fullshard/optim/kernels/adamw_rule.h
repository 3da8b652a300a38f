// SPDX-License-Identifier: Apache-2.0
// The arithmetic of AdamW and Adam for one element, on the CPU and in CUDA kernels.
#pragma once

#include <cmath>

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

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

// p · decay - step_size · m / (√v / root_correction + epsilon) with the correction multiplied into
// the other two: one division for each element instead of two.
template <class Number>
struct AdamWRule {
  using Real = Number;
  static constexpr int kStates = 2;
  static constexpr bool kReadsGradient = true;

  AdamWRule() = default;
  explicit AdamWRule(const AdamWStep& step)
      : clip(static_cast<Real>(step.clip)),
        l2(static_cast<Real>(step.l2)),
        to_moment(static_cast<Real>(1 - step.beta1)),
        beta2(static_cast<Real>(step.beta2)),
        to_variance(static_cast<Real>(1 - step.beta2)),
        decay(static_cast<Real>(step.decay)),
        step_size(static_cast<Real>(step.step_size * step.root_correction)),
        epsilon(static_cast<Real>(step.epsilon * step.root_correction)) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter,
                                                                      Real gradient, Real& moment,
                                                                      Real& variance) const {
    gradient = gradient * clip + parameter * l2;
    moment = moment + (gradient - moment) * to_moment;
    variance = variance * beta2 + gradient * gradient * to_variance;
    parameter = parameter * decay - step_size * moment / (std::sqrt(variance) + epsilon);
  }

  Real clip, l2, to_moment, beta2, to_variance, decay, step_size, epsilon;
};

}  // namespace fullshard::optim
