// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/optim/kernels/lamb_rule.h"
#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

// States: moment, variance. The first pass updates them and leaves the master alone; the second
// one moves the master. The same bits for every number of threads.
LambSquares lamb_moments(const LambStep& step, const PieceElements& piece);
void lamb_step(const LambStep& step, const PieceElements& piece);

}  // namespace fullshard::optim
