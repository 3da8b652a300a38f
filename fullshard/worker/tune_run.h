// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

// `fullshard tune`: plans in this process, measures in others. Returns the exit status.
int run_tune(cli::RunArguments& arguments);

}  // namespace fullshard::worker
