// SPDX-License-Identifier: Apache-2.0
// `fullshard bench bus` beside a GPU.
#pragma once

#include "fullshard/cli/commands/bench_command.h"

namespace fullshard::worker {

int run_bench_bus(const cli::BenchCommand& command);  // gives the exit status

}  // namespace fullshard::worker
