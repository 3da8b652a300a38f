// SPDX-License-Identifier: Apache-2.0
// `fullshard train`, `eval`, `compare` and `bench comm` in the program without libtorch: arguments
// are checked here, at once, and `fullshard-core` does the work on every rank.
#pragma once

#include <string>
#include <vector>

#include "fullshard/cli/flags/bench_arguments.h"
#include "fullshard/cli/flags/run_arguments.h"

namespace fullshard::cli {

// `words` as the user wrote them, the command's name first. Returns the exit status; does not
// return when this process becomes the rank itself.
int run_on_ranks(RunArguments& arguments, const std::vector<std::string>& words);

// `bench comm`: the same for ranks without a model.
int run_on_ranks(CommBenchArguments& arguments, const std::vector<std::string>& words);

// For commands without ranks: this process becomes fullshard-core with the same arguments.
[[noreturn]] void become_core(const std::vector<std::string>& words);

// This process becomes that program; the first word is its path.
[[noreturn]] void become(const std::vector<std::string>& command);

}  // namespace fullshard::cli
