// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/text/path_weight.h"

#include <unistd.h>

#include <charconv>

namespace fullshard::data {

std::optional<WeightedPath> path_with_weight(const std::string& word) {
  const size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0 || ::access(word.c_str(), F_OK) == 0) {
    return std::nullopt;
  }
  double weight = 0;
  const char* const end = word.data() + word.size();
  const auto result = std::from_chars(word.data() + colon + 1, end, weight);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return WeightedPath{word.substr(0, colon), weight};
}

}  // namespace fullshard::data
