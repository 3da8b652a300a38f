// SPDX-License-Identifier: Apache-2.0
// "chat.jsonl:0.7": a path, and the number after its last colon.
#pragma once

#include <optional>
#include <string>

namespace fullshard::data {

struct WeightedPath {
  std::string path;
  double weight = 1;
};

// Absent if there is no such number, or the word is a path that exists as it is written. The weight
// may be any number.
std::optional<WeightedPath> path_with_weight(const std::string& word);

}  // namespace fullshard::data
