// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/gradient_factor.h"

#include <cmath>

#include "fullshard/base/error.h"

namespace fullshard::engine {

void GradientFactor::set_loss_scale(double scale) {
  check(scale > 0 && std::isfinite(scale),
        "set_loss_scale: the scale is {}, expected a positive, finite number", scale);
  loss_scale_ = scale;
}

}  // namespace fullshard::engine
