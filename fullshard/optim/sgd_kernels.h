#pragma once

#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// Everything of a step that is the same for all elements.
struct SgdStep {
  double clip = 1;  // the gradient is multiplied with it
  double lr = 0;
  double weight_decay = 0;
  double momentum = 0;
  double from_gradient = 1;  // 1 - dampening; 1 in the first step
  bool nesterov = false;
};

// States: the momentum buffer, or none.
void sgd_step(const SgdStep& step, const PieceElements& piece);

}  // namespace fullshard
