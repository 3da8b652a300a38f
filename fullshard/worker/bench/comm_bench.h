// SPDX-License-Identifier: Apache-2.0
// `fullshard bench comm`: collectives between ranks, compared with a copy on the same machine.
#pragma once

#include "fullshard/cli/flags/bench_arguments.h"

namespace fullshard::worker {

// On every rank; the first one prints. Returns the exit status.
int run_bench_comm(const cli::CommBenchArguments& arguments);

}  // namespace fullshard::worker
