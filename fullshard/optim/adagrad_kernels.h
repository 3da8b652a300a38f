#pragma once

#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// Everything of a step that is the same for all elements.
struct AdagradStep {
  double clip = 1;  // the gradient is multiplied with it
  double lr = 0;
  double weight_decay = 0;
  double epsilon = 0;
};

// States: the sum of squares.
void adagrad_step(const AdagradStep& step, const PieceElements& piece);

}  // namespace fullshard
