// SPDX-License-Identifier: Apache-2.0
// `fullshard compare` on one rank.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

int run_compare(const cli::RunArguments& arguments);

}  // namespace fullshard::worker
