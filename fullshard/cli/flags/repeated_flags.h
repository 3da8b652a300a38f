// SPDX-License-Identifier: Apache-2.0
// The last value of a repeated flag counts, as in argparse: scripts append to a given command line.
// Flags that are lists, or may be repeated, collect their values.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fullshard::cli {

// Sets this for all flags of the program and its commands; call it before parsing.
void let_last_count(CLI::App& app);

// "--steps: is given 2 times; the last counts: 3", for each flag whose values differ; call it after
// parsing.
std::vector<std::string> repeated_flags(const CLI::App& app);

}  // namespace fullshard::cli
