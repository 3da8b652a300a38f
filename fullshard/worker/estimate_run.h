// SPDX-License-Identifier: Apache-2.0
// `fullshard estimate`: one process, no ranks.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

int run_estimate(cli::RunArguments& arguments);  // returns the exit status

}  // namespace fullshard::worker
