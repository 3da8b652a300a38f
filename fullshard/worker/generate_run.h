// SPDX-License-Identifier: Apache-2.0
// `fullshard generate` on one rank.
#pragma once

#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::worker {

int run_generate(const cli::RunArguments& arguments);

}  // namespace fullshard::worker
