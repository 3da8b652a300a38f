// SPDX-License-Identifier: Apache-2.0
// The processor cores of this host that the ranks may use, and how they are divided.
#pragma once

#include <vector>

namespace fullshard::launch {

// The cores that this process may run on; threads of one physical core are neighbours.
std::vector<int> allowed_cores();
// How many of them the control group's share of time is worth: at least 1.
int num_usable_cores();
// The part of `cores` for one of `ranks`: in order, disjoint, sizes differing by one at most.
// Throws Error when there are fewer cores than ranks.
std::vector<int> cores_of(const std::vector<int>& cores, int local_rank, int ranks);

}  // namespace fullshard::launch
