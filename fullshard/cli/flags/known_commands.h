// SPDX-License-Identifier: Apache-2.0
// Unknown commands and subcommands: the parser would only say that something was not expected.
#pragma once

#include <span>
#include <string>

namespace CLI {
class App;
}

namespace fullshard::cli {

// Throws an error (kind usage) for a word that is not a command where one is required, with the
// nearest and all available ones; `name` is what precedes it: "fullshard checkpoint".
void check_command(const CLI::App& app, std::span<const std::string> words,
                   const std::string& name);

}  // namespace fullshard::cli
