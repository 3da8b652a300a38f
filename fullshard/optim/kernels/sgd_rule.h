// SPDX-License-Identifier: Apache-2.0
// The arithmetic of stochastic gradient descent for one element, on the CPU and in CUDA kernels.
#pragma once

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

// Everything of a step that is the same for all elements.
struct SgdStep {
  double clip = 1;  // the gradient is multiplied with it
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;
  double from_gradient = 1;  // 1 - dampening; 1 in the first step
  bool nesterov = false;
};

template <class Number>
struct MomentumRule {
  using Real = Number;
  static constexpr int kStates = 1;
  static constexpr bool kReadsGradient = true;

  MomentumRule() = default;
  explicit MomentumRule(const SgdStep& step)
      : clip(static_cast<Real>(step.clip)),
        lr(static_cast<Real>(step.lr)),
        decay(static_cast<Real>(step.weight_decay)),
        momentum(static_cast<Real>(step.momentum)),
        from_gradient(static_cast<Real>(step.from_gradient)),
        // The direction is buffer, or gradient + momentum · buffer with Nesterov.
        of_gradient(step.nesterov ? 1 : 0),
        of_buffer(step.nesterov ? momentum : Real(1)) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter,
                                                                      Real gradient,
                                                                      Real& buffer) const {
    gradient = gradient * clip + parameter * decay;
    buffer = buffer * momentum + gradient * from_gradient;
    parameter = parameter - lr * (gradient * of_gradient + buffer * of_buffer);
  }

  Real clip, lr, decay, momentum, from_gradient, of_gradient, of_buffer;
};

// Without a buffer.
template <class Number>
struct PlainSgdRule {
  using Real = Number;
  static constexpr int kStates = 0;
  static constexpr bool kReadsGradient = true;

  PlainSgdRule() = default;
  explicit PlainSgdRule(const SgdStep& step)
      : clip(static_cast<Real>(step.clip)),
        lr(static_cast<Real>(step.lr)),
        decay(static_cast<Real>(step.weight_decay)) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter,
                                                                      Real gradient) const {
    parameter = parameter - lr * (gradient * clip + parameter * decay);
  }

  Real clip, lr, decay;
};

}  // namespace fullshard::optim
