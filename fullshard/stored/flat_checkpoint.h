// SPDX-License-Identifier: Apache-2.0
// Weights and optimizer states side by side in one source, under the flat names that
// torch.distributed.checkpoint gives to {"model": ..., "optim": {"state": ...}}.
#pragma once

#include "fullshard/stored/any_checkpoint.h"

namespace fullshard::stored {

// "model.emb.weight", "optim.state.emb.weight.exp_avg", and "optim.state.emb.weight.step" where the
// count of steps is known. The result has weights only and borrows
// from `checkpoint`. Tied tensors have all their names: torch asks for each.
AnyCheckpoint flatten(const AnyCheckpoint& checkpoint);

}  // namespace fullshard::stored
