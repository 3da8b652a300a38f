// SPDX-License-Identifier: Apache-2.0
// The arithmetic of LAMB for one element, on the CPU and in CUDA kernels.
#pragma once

#include <cmath>

#include "fullshard/base/host_device.h"

namespace fullshard::optim {

// Everything of a step that is the same for all elements of a tensor.
struct LambStep {
  double clip = 1;  // the gradient is multiplied with it
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  bool epsilon_inside_root = false;
  double weight_decay = 0;
  double step_size = 0;  // second pass: lr with its corrections · trust ratio
};

// Sums of squares over a piece, in fp64.
struct LambSquares {
  double parameter = 0;
  double direction = 0;
};

// The second pass, which moves the parameter; `moments` is the first.
template <class Number>
struct LambRule {
  using Real = Number;
  static constexpr int kStates = 2;
  static constexpr bool kReadsGradient = false;  // and states are only read

  LambRule() = default;
  explicit LambRule(const LambStep& step)
      : clip(static_cast<Real>(step.clip)),
        beta1(static_cast<Real>(step.beta1)),
        to_moment(static_cast<Real>(1 - step.beta1)),
        beta2(static_cast<Real>(step.beta2)),
        to_variance(static_cast<Real>(1 - step.beta2)),
        inside(static_cast<Real>(step.epsilon_inside_root ? step.epsilon : 0)),
        outside(static_cast<Real>(step.epsilon_inside_root ? 0 : step.epsilon)),
        decay(static_cast<Real>(step.weight_decay)),
        step_size(static_cast<Real>(step.step_size)),
        wide_step_size(step.step_size) {}

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline Real direction(Real parameter, Real moment,
                                                                     Real variance) const {
    return moment / (std::sqrt(variance + inside) + outside) + parameter * decay;
  }

  // Updates the states; the direction in which the parameter will go.
  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline Real moments(Real parameter, Real gradient,
                                                                   Real& moment,
                                                                   Real& variance) const {
    gradient = gradient * clip;
    moment = moment * beta1 + gradient * to_moment;
    variance = variance * beta2 + gradient * gradient * to_variance;
    return direction(parameter, moment, variance);
  }

  [[gnu::always_inline]] FULLSHARD_HOST_DEVICE inline void operator()(Real& parameter, Real,
                                                                      Real& moment,
                                                                      Real& variance) const {
    parameter = parameter - step_size * direction(parameter, moment, variance);
  }

  // For a tensor whose ratio was not known when the rule was made.
  FULLSHARD_HOST_DEVICE void set_trust_ratio(float ratio) {
    step_size = static_cast<Real>(wide_step_size * static_cast<double>(ratio));
  }

  Real clip, beta1, to_moment, beta2, to_variance, inside, outside, decay, step_size;
  double wide_step_size;
};

}  // namespace fullshard::optim
