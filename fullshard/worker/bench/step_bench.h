// SPDX-License-Identifier: Apache-2.0
// `fullshard bench step`: what training steps take here.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

// As a run of `train` in a folder that goes again. Gives the exit status.
int run_bench_step(cli::RunArguments& arguments);

}  // namespace fullshard::worker
