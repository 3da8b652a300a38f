// `fullshard checkpoint`: what the flags ask for, printed. One process, no ranks.
#pragma once

#include "fullshard/cli/checkpoint_arguments.h"

namespace fullshard {

// Gives the exit status: 1 where `diff` found a difference. Damage is an Error of the kind input.
int run_checkpoint(const CheckpointArguments& arguments);

}  // namespace fullshard
