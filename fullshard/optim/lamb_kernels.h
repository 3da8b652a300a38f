#pragma once

#include "fullshard/optim/piece_elements.h"

namespace fullshard {

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

// States: moment, variance. The first pass updates them and leaves the master alone; the second
// one moves the master. The same bits for every number of threads.
LambSquares lamb_moments(const LambStep& step, const PieceElements& piece);
void lamb_step(const LambStep& step, const PieceElements& piece);

}  // namespace fullshard
