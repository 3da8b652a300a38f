// SPDX-License-Identifier: Apache-2.0
// "chat.jsonl:0.7": a path with its weight among others.
#pragma once

#include <string>
#include <vector>

namespace fullshard::data {

struct WeightedPath {
  std::string path;
  double weight = 1;
};

// Empty where no path has a weight. A path that is there as it is written has none. Some with and
// some without a weight, and a weight that is not above 0, are Errors of the kind `usage`.
std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words);

}  // namespace fullshard::data
