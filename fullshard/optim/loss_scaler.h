// SPDX-License-Identifier: Apache-2.0
// Loss scaling for fp16: the loss is multiplied so that small gradients do not vanish, and the
// factor follows what overflows. DeepSpeed's state machine, step for step.
#pragma once

#include <cstdint>
#include <string>

#include "fullshard/base/loss_scale_state.h"

namespace fullshard {

struct LossScaleOptions {
  double loss_scale = 0;  // 0: dynamic; else fixed
  int initial_scale_power = 16;
  int loss_scale_window = 1000;         // good steps after which the scale doubles
  int hysteresis = 2;                   // overflows that are forgiven before the scale is halved
  bool consecutive_hysteresis = false;  // a good step forgives again
  double min_loss_scale = 1;
};

// Errors name the key and the accepted range.
void check_options(const LossScaleOptions& options);

class LossScaler {
 public:
  explicit LossScaler(const LossScaleOptions& options = {});
  // Multiplies by one, for every dtype but fp16.
  static LossScaler none();

  double scale() const { return scale_; }
  bool is_dynamic() const { return is_dynamic_; }
  const LossScaleOptions& options() const { return options_; }

  // After every step. False when the scale should have been lowered and is at its minimum already:
  // then it stays there.
  [[nodiscard]] bool update(bool overflowed);

  // What a checkpoint keeps.
  using State = LossScaleState;
  State state() const { return {scale_, iteration_, last_overflow_, hysteresis_}; }
  void restore(const State& state);

 private:
  bool lower();

  LossScaleOptions options_;
  bool is_dynamic_;
  double scale_;
  int64_t iteration_ = 0;
  int64_t last_overflow_ = -1;
  int hysteresis_;
};

}  // namespace fullshard
