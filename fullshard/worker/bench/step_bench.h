// SPDX-License-Identifier: Apache-2.0
// `fullshard bench step`: what training steps take here.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

// Runs `train` in a temporary folder. Returns the exit status.
int run_bench_step(cli::RunArguments& arguments);

}  // namespace fullshard::worker
