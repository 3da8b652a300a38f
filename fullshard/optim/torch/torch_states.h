// SPDX-License-Identifier: Apache-2.0
// The states of a torch optimizer over pieces, in the form in which checkpoints hold them. Known
// are SGD, Adam, AdamW, Adagrad and RMSprop, whose states are one value per element and a count per
// parameter. Any other optimizer is refused by its name: what its states mean is not known here.
#pragma once

#include "fullshard/optim/optimizer_states.h"
#include "fullshard/optim/torch/torch_optimizer.h"

namespace fullshard::optim {

// Copies of the states of this rank's pieces. Which states there are depends on the optimizer's
// options alone, so that all ranks agree before the first step, too.
OptimizerStates states_of(const PieceParameters& pieces, const torch::optim::Optimizer& optimizer);

// The same without values, to be filled: for load_checkpoint().
OptimizerStates empty_states_of(const PieceParameters& pieces,
                                const torch::optim::Optimizer& optimizer);
// Gives the optimizer the values, which it goes on with in place, and the counts; a parameter
// without counts has no state afterwards, as before its first step. Learning rates are taken over
// where there are as many groups as were saved.
void restore_states(const PieceParameters& pieces, const OptimizerStates& states,
                    torch::optim::Optimizer& optimizer);

}  // namespace fullshard::optim
