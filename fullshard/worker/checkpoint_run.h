// SPDX-License-Identifier: Apache-2.0
// `fullshard checkpoint`: what the flags ask for, printed. One process, no ranks.
#pragma once

#include "fullshard/cli/flags/checkpoint_arguments.h"

namespace fullshard::worker {

// Returns the exit status: 1 if `diff` found a difference. Damage is an Error of the kind input.
int run_checkpoint(const cli::CheckpointArguments& arguments);

}  // namespace fullshard::worker
