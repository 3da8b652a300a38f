#pragma once

#include "fullshard/optim/adagrad_rule.h"
#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// States: the sum of squares.
void adagrad_step(const AdagradStep& step, const PieceElements& piece);

}  // namespace fullshard
