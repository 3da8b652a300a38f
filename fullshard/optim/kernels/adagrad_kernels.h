// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/optim/kernels/adagrad_rule.h"
#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

// States: the sum of squares.
void adagrad_step(const AdagradStep& step, const PieceElements& piece);

}  // namespace fullshard::optim
