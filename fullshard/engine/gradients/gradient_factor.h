// SPDX-License-Identifier: Apache-2.0
// What gradients are multiplied with between a loss and a step. This is the only place that
// computes any of it:
//
//   loss · loss_factor → backward → sum over ranks · mean_factor → step with clip / loss_scale
//
// Collectives of comm that average by themselves multiply with the same number, 1/W. No torch: the
// kernel that clips on a GPU shares the arithmetic.
#pragma once

#include <cstdint>

#include "fullshard/base/host_device.h"

namespace fullshard::engine {

// Of one micro-batch's loss before backward: a step has the mean of its micro-batches, scaled.
inline double loss_factor(double loss_scale, int accumulation_steps) {
  return loss_scale / accumulation_steps;
}

// From the sum over ranks to their mean.
inline double mean_factor(int64_t num_ranks) { return 1.0 / static_cast<double>(num_ranks); }

// What brings gradients of this norm down to max_norm; 1 when they are below it. As torch does it:
// a tiny addend keeps the quotient below one near the limit. A norm that is NaN clips nothing.
FULLSHARD_HOST_DEVICE inline float clip_coefficient(float max_norm, double norm) {
  const float coefficient = max_norm / (static_cast<float>(norm) + 1e-6f);
  return coefficient < 1.0f ? coefficient : 1.0f;
}

// The factor of the gradients that wait for a step.
FULLSHARD_HOST_DEVICE inline double step_factor(double clip, double loss_scale) {
  return clip / loss_scale;
}

// The factor that a model's next step applies. Clipping holds for one step, the loss scale until
// another is set.
class GradientFactor {
 public:
  // The loss was multiplied by this before backward. An error unless positive and finite.
  void set_loss_scale(double scale);
  double loss_scale() const { return loss_scale_; }

  // The norm of gradients as they would be without the loss scale.
  double unscaled(double norm) const { return norm / loss_scale_; }
  // `norm` is of unscaled gradients.
  void clip(double max_norm, double norm) {
    clip_ = clip_coefficient(static_cast<float>(max_norm), norm);
  }
  // After a step, or when the gradients are dropped.
  void forget_clip() { clip_ = 1; }

  double value() const { return step_factor(clip_, loss_scale_); }

 private:
  double clip_ = 1;
  double loss_scale_ = 1;
};

}  // namespace fullshard::engine
