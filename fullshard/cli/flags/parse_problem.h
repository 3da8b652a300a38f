// SPDX-License-Identifier: Apache-2.0
// What is wrong with the words of a command line, as our other errors say it: the parser's own
// texts name words backwards and ranges with three hundred digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fullshard::cli {

// "train: no option '--stpes', did you mean '--steps'?; see fullshard train --help"; of several
// unknown ones all, in the order typed, each on a line of its own. `words` as the user typed them.
std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words);

// ", did you mean '--steps'?" for a word that is no option of the command, or nothing.
std::string suggest_option(const CLI::App& command, std::string_view word);

}  // namespace fullshard::cli
