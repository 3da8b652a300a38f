#pragma once

#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// Everything of a step that is the same for all elements.
struct LionStep {
  double clip = 1;  // the gradient is multiplied with it
  double beta1 = 0;
  double beta2 = 0;
  double decay = 1;  // 1 - lr · weight_decay
  double lr = 0;
};

// States: the moment.
void lion_step(const LionStep& step, const PieceElements& piece);

}  // namespace fullshard
