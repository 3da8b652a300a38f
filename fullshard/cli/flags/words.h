// SPDX-License-Identifier: Apache-2.0
// Prepares command-line words for the parser.
#pragma once

#include <string>
#include <vector>

namespace fullshard::cli {

// --nproc_per_node becomes --nproc-per-node; a value after '=' stays as it is. --fsdp without words
// is the Trainer's --fsdp true. In reverse order, as CLI11 expects a vector.
std::vector<std::string> words_for_parser(std::vector<std::string> words);

// `deepspeed --no_python` puts --local_rank=N before all words of the program: this moves it to
// their end, where the command accepts it.
std::vector<std::string> with_command_first(std::vector<std::string> words);

}  // namespace fullshard::cli
