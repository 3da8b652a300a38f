// All ranks must hold the same model; whoever does not is told where it differs.
#pragma once

#include "fullshard/comm/communicator.h"
#include "fullshard/shard/wrap.h"

namespace fullshard {

// Collective. Compares names, shapes, dtypes and requires_grad of the units' parameters; the error,
// the same on every rank, names the first difference and the ranks that have it.
void check_ranks_agree(const Communicator& everyone, const WrapPlan& plan);

}  // namespace fullshard
