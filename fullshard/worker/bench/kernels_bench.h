// SPDX-License-Identifier: Apache-2.0
// `fullshard bench kernels`: the table that `simulate --kernels` reads.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

int run_bench_kernels(cli::RunArguments& arguments);  // returns the exit status

}  // namespace fullshard::worker
