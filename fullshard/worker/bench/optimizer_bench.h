// SPDX-License-Identifier: Apache-2.0
// `fullshard bench optimizer`: a step over parameters of one device, compared with a copy of as
// many bytes.
#pragma once

#include "fullshard/cli/flags/bench_arguments.h"

namespace fullshard::worker {

int run_bench_optimizer(const cli::OptimizerBenchArguments& arguments);  // returns the exit status

}  // namespace fullshard::worker
