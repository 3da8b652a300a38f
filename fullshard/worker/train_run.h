// SPDX-License-Identifier: Apache-2.0
// `fullshard train` on one rank.
#pragma once

#include <string>
#include <vector>

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

// Returns the exit status; errors are thrown.
int run_train(const cli::RunArguments& arguments, const std::vector<std::string>& command);

}  // namespace fullshard::worker
