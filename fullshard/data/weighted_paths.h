// SPDX-License-Identifier: Apache-2.0
// "chat.jsonl:0.7": a path with its weight, among others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fullshard/data/text/path_weight.h"

namespace fullshard::data {

// Empty if no path has a weight. A path that exists as it is written has none. A weight on some
// paths only, and a weight that is not above 0, are Errors of the kind `usage`.
std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words);

// Divides `total` examples among such paths by their weights, each at least one; 0, which means
// all, stays 0. Fewer than there are paths are an Error of the kind `usage`.
std::vector<int64_t> samples_of(const std::vector<WeightedPath>& weighted, int64_t total);

}  // namespace fullshard::data
