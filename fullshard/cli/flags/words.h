// SPDX-License-Identifier: Apache-2.0
// Command-line words as the parser wants them.
#pragma once

#include <string>
#include <vector>

namespace fullshard::cli {

// --nproc_per_node is --nproc-per-node; a value after '=' stays as it is. --fsdp without words is
// the Trainer's --fsdp true. Backwards, as CLI11 takes a vector.
std::vector<std::string> words_for_parser(std::vector<std::string> words);

// `deepspeed --no_python` puts --local_rank=N before all words of the program: it is moved to their
// end, where the command that it is for takes it.
std::vector<std::string> with_command_first(std::vector<std::string> words);

}  // namespace fullshard::cli
