// SPDX-License-Identifier: Apache-2.0
// The arithmetic of Lion for one element, on the CPU and in CUDA kernels.
#pragma once

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

// Everything of a step that is the same for all elements.
struct LionStep {
  double clip = 1;  // the gradient is multiplied with it
  double beta1 = 0;
  double beta2 = 0;
  double decay = 1;  // 1 - lr · weight_decay
  double lr = 0;
};

template <class Number>
struct LionRule {
  using Real = Number;
  static constexpr int kStates = 1;
  static constexpr bool kReadsGradient = true;

  LionRule() = default;
  explicit LionRule(const LionStep& step)
      : clip(static_cast<Real>(step.clip)),
        beta1(static_cast<Real>(step.beta1)),
        to_direction(static_cast<Real>(1 - step.beta1)),
        beta2(static_cast<Real>(step.beta2)),
        to_moment(static_cast<Real>(1 - step.beta2)),
        decay(static_cast<Real>(step.decay)),
        lr(static_cast<Real>(step.lr)) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter,
                                                                      Real gradient,
                                                                      Real& moment) const {
    gradient = gradient * clip;
    const Real direction = moment * beta1 + gradient * to_direction;
    const Real step = direction > 0 ? lr : (direction < 0 ? -lr : Real(0));
    parameter = parameter * decay - step;
    moment = moment * beta2 + gradient * to_moment;
  }

  Real clip, beta1, to_direction, beta2, to_moment, decay, lr;
};

}  // namespace fullshard::optim
