// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/weighted_paths.h"

#include <unistd.h>

#include <charconv>
#include <cmath>
#include <optional>

#include "fullshard/base/error.h"

namespace fullshard::data {
namespace {

std::optional<WeightedPath> with_weight(const std::string& word) {
  const size_t colon = word.rfind(':');
  if (colon == std::string::npos || colon == 0 || ::access(word.c_str(), F_OK) == 0) {
    return std::nullopt;
  }
  double weight = 0;
  const char* const end = word.data() + word.size();
  const auto result = std::from_chars(word.data() + colon + 1, end, weight);
  if (result.ec != std::errc() || result.ptr != end) return std::nullopt;
  if (!std::isfinite(weight) || weight <= 0) {
    fail_as(ErrorKind::usage, "--data: the weight of {} is {}, expected more than 0", word, weight);
  }
  return WeightedPath{word.substr(0, colon), weight};
}

}  // namespace

std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words) {
  std::vector<WeightedPath> weighted;
  std::string plain;
  for (const std::string& word : words) {
    if (auto found = with_weight(word)) {
      weighted.push_back(*std::move(found));
    } else {
      plain = word;
    }
  }
  if (!weighted.empty() && weighted.size() < words.size()) {
    fail_as(ErrorKind::usage,
            "--data: {} has a weight and {} has none; give each its weight, as PATH:0.5, or none",
            weighted.front().path, plain);
  }
  return weighted;
}

}  // namespace fullshard::data
