// SPDX-License-Identifier: Apache-2.0
// The arithmetic of Adagrad for one element, on the CPU and in CUDA kernels.
#pragma once

#include <cmath>

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

// Everything of a step that is the same for all elements.
struct AdagradStep {
  double clip = 1;  // the gradient is multiplied with it
  double lr = 0;
  double weight_decay = 0;
  double epsilon = 0;
};

template <class Number>
struct AdagradRule {
  using Real = Number;
  static constexpr int kStates = 1;
  static constexpr bool kReadsGradient = true;

  AdagradRule() = default;
  explicit AdagradRule(const AdagradStep& step)
      : clip(static_cast<Real>(step.clip)),
        lr(static_cast<Real>(step.lr)),
        decay(static_cast<Real>(step.weight_decay)),
        epsilon(static_cast<Real>(step.epsilon)) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter,
                                                                      Real gradient,
                                                                      Real& sum) const {
    gradient = gradient * clip + parameter * decay;
    sum = sum + gradient * gradient;
    parameter = parameter - lr * gradient / (std::sqrt(sum) + epsilon);
  }

  Real clip, lr, decay, epsilon;
};

}  // namespace fullshard::optim
