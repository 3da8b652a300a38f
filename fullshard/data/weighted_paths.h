// SPDX-License-Identifier: Apache-2.0
// "chat.jsonl:0.7": a path with its weight among others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/data/text/path_weight.h"

namespace fullshard::data {

// Empty where no path has a weight. A path that is there as it is written has none. Some with and
// some without a weight, and a weight that is not above 0, are Errors of the kind `usage`.
std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words);

// `total` examples divided among such paths by their weights, each at least one; 0, which is all,
// stays so. Fewer than there are paths are an Error of the kind `usage`.
std::vector<int64_t> samples_of(const std::vector<WeightedPath>& weighted, int64_t total);

}  // namespace fullshard::data
