// SPDX-License-Identifier: Apache-2.0
// How many files and connections this process may have open, and how many its rank will need: said
// before the ranks connect, not when the last of many connections fails.
#pragma once

#include <cstdint>
#include <vector>

namespace fullshard::comm {

// As many as the system lets this process have without asking: the hard limit (`ulimit -Hn`). Gives
// the limit that holds then.
int64_t raise_file_limit();

// What rank `rank` opens in a world with ranks on these hosts, with room for checkpoints and data.
// `serves`: the store is in this process.
int64_t files_needed(const std::vector<int>& hosts, int rank, bool serves);

// An Error that names both numbers when `needed` are more than `limit`.
void check_file_limit(int64_t needed, int64_t limit, int num_ranks);

}  // namespace fullshard::comm
