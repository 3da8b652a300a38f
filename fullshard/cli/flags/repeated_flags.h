// SPDX-License-Identifier: Apache-2.0
// A flag that is given twice counts as it was given last, as in argparse: scripts append to a line
// that they were given. Flags that are lists, or may be repeated, collect their values.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace fullshard::cli {

// Of all flags of the program and its commands; before the words are read.
void let_last_count(CLI::App& app);

// "--steps: is given 2 times; the last counts: 3", for each whose values differ; after that.
std::vector<std::string> repeated_flags(const CLI::App& app);

}  // namespace fullshard::cli
