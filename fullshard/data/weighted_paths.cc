// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/weighted_paths.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "fullshard/base/error.h"

namespace fullshard::data {
std::vector<WeightedPath> weighted_paths(const std::vector<std::string>& words) {
  std::vector<WeightedPath> weighted;
  std::string plain;
  for (const std::string& word : words) {
    if (auto found = path_with_weight(word)) {
      if (!std::isfinite(found->weight) || found->weight <= 0) {
        fail_as(ErrorKind::usage, "--data: the weight of {} is {}, expected more than 0", word,
                found->weight);
      }
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

std::vector<int64_t> samples_of(const std::vector<WeightedPath>& weighted, int64_t total) {
  const auto num_paths = std::ssize(weighted);
  if (total == 0) return std::vector<int64_t>(weighted.size(), 0);
  if (total < num_paths) {
    fail_as(ErrorKind::usage,
            "--max-samples: is {}, but --data mixes {} data sets; give at least one example of "
            "each",
            total, num_paths);
  }
  double all = 0, until = 0;
  for (const auto& [path, weight] : weighted) all += weight;
  std::vector<int64_t> samples;
  int64_t given = 0;
  for (const auto& [path, weight] : weighted) {
    until += weight / all;
    const int64_t left_for_others = num_paths - std::ssize(samples) - 1;
    const int64_t end = std::clamp<int64_t>(std::llround(until * static_cast<double>(total)),
                                            given + 1, total - left_for_others);
    samples.push_back(end - given);
    given = end;
  }
  return samples;
}

}  // namespace fullshard::data
