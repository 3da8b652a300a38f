#pragma once

#include "fullshard/optim/piece_elements.h"
#include "fullshard/optim/sgd_rule.h"

namespace fullshard {

// States: the momentum buffer, or none.
void sgd_step(const SgdStep& step, const PieceElements& piece);

}  // namespace fullshard
