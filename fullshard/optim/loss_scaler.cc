// SPDX-License-Identifier: Apache-2.0
#include "fullshard/optim/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

constexpr double kFactor = 2;
constexpr int kMostPower = 127;  // of two in an fp32

}  // namespace

void check_options(const LossScaleOptions& options) {
  check(std::isfinite(options.loss_scale) && options.loss_scale >= 0,
        "loss_scale is {}, expected 0 (dynamic) or a positive, finite number", options.loss_scale);
  check(options.initial_scale_power >= 0 && options.initial_scale_power <= kMostPower,
        "initial_scale_power is {}, expected 0 to {}", options.initial_scale_power, kMostPower);
  check(options.loss_scale_window > 0, "loss_scale_window is {}, expected at least 1",
        options.loss_scale_window);
  check(options.hysteresis >= 1, "hysteresis is {}, expected at least 1", options.hysteresis);
  check(std::isfinite(options.min_loss_scale) && options.min_loss_scale > 0,
        "min_loss_scale is {}, expected a positive, finite number", options.min_loss_scale);
}

LossScaler::LossScaler(const LossScaleOptions& options)
    : options_(options),
      is_dynamic_(options.loss_scale == 0),
      scale_(is_dynamic_ ? std::ldexp(1.0, options.initial_scale_power) : options.loss_scale),
      hysteresis_(options.hysteresis) {
  check_options(options);
}

LossScaler LossScaler::none() { return LossScaler({.loss_scale = 1}); }

bool LossScaler::update(bool overflowed) {
  if (!is_dynamic_) return true;
  bool ok = true;
  if (overflowed) {
    ok = lower();
    last_overflow_ = iteration_;
  } else {
    if (options_.consecutive_hysteresis) hysteresis_ = options_.hysteresis;
    const int64_t good = iteration_ - last_overflow_ - 1;
    if (good > 0 && good % options_.loss_scale_window == 0) {
      if (!options_.consecutive_hysteresis) hysteresis_ = options_.hysteresis;
      scale_ *= kFactor;
    }
  }
  ++iteration_;
  return ok;
}

bool LossScaler::lower() {
  if (options_.hysteresis != 1 && hysteresis_ != 1) {
    --hysteresis_;
    return true;
  }
  if (scale_ == options_.min_loss_scale) return false;
  scale_ = std::max(scale_ / kFactor, options_.min_loss_scale);
  return true;
}

void LossScaler::restore(const State& state) {
  check(state.scale > 0 && std::isfinite(state.scale) && state.iteration >= 0,
        "loss scale state: scale {} at iteration {}, expected a positive scale and no negative "
        "iteration",
        state.scale, state.iteration);
  scale_ = state.scale;
  iteration_ = state.iteration;
  last_overflow_ = state.last_overflow;
  hysteresis_ = state.hysteresis;
}

}  // namespace fullshard
