// SPDX-License-Identifier: Apache-2.0
// `fullshard bench optimizer`: a step over parameters of one device, beside a copy of as many
// bytes.
#pragma once

#include "fullshard/cli/flags/bench_arguments.h"

namespace fullshard::worker {

int run_bench_optimizer(const cli::OptimizerBenchArguments& arguments);  // gives the exit status

}  // namespace fullshard::worker
