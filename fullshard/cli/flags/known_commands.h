// SPDX-License-Identifier: Apache-2.0
// Commands, and commands of commands, that are not there: the parser would only say that something
// was not expected.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace fullshard::cli {

// An error (kind usage) for a word that is no command where one is due, with the nearest and all
// that there are; `name` is what was read before it: "fullshard checkpoint".
void check_command(const CLI::App& app, std::span<const std::string> words,
                   const std::string& name);

}  // namespace fullshard::cli
