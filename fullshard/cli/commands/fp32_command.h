// SPDX-License-Identifier: Apache-2.0
// `fullshard checkpoint to-fp32`, which does not load libtorch.
#pragma once

#include "fullshard/cli/flags/checkpoint_arguments.h"

namespace fullshard::cli {

int run_to_fp32(const CheckpointCommandOptions& options);  // returns the exit status

}  // namespace fullshard::cli
