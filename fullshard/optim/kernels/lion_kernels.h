// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/optim/kernels/lion_rule.h"
#include "fullshard/optim/kernels/piece_elements.h"

namespace fullshard::optim {

// States: the moment.
void lion_step(const LionStep& step, const PieceElements& piece);

}  // namespace fullshard::optim
