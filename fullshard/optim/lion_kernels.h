#pragma once

#include "fullshard/optim/lion_rule.h"
#include "fullshard/optim/piece_elements.h"

namespace fullshard {

// States: the moment.
void lion_step(const LionStep& step, const PieceElements& piece);

}  // namespace fullshard
