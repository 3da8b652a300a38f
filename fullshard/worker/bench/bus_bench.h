// SPDX-License-Identifier: Apache-2.0
// `fullshard bench bus` on a machine with a GPU.
#pragma once

#include "fullshard/cli/commands/bench_command.h"

namespace fullshard::worker {

int run_bench_bus(const cli::BenchCommand& command);  // returns the exit status

}  // namespace fullshard::worker
