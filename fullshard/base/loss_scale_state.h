// SPDX-License-Identifier: Apache-2.0
// The state of a dynamic loss scale: what optimizers keep up and checkpoints carry.
#pragma once

#include <cstdint>

namespace fullshard {

struct LossScaleState {
  double scale = 1;
  int64_t iteration = 0;
  int64_t last_overflow = -1;
  int hysteresis = 0;
};

}  // namespace fullshard
