// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/optim/kernels/piece_elements.h"
#include "fullshard/optim/kernels/sgd_rule.h"

namespace fullshard::optim {

// States: the momentum buffer, or none.
void sgd_step(const SgdStep& step, const PieceElements& piece);

}  // namespace fullshard::optim
