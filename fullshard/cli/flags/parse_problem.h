// SPDX-License-Identifier: Apache-2.0
// Errors of the command line in the style of our other errors: the parser's own texts list words
// backwards and print ranges with three hundred digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace fullshard::cli {

// "train: no option '--stpes', did you mean '--steps'?; see fullshard train --help"; all unknown
// options, in the order typed, one per line. `words` as the user typed them.
std::string parse_problem(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words);

// ", did you mean '--steps'?" for a word that is not an option of the command, or an empty text.
std::string suggest_option(const CLI::App& command, std::string_view word);

}  // namespace fullshard::cli
