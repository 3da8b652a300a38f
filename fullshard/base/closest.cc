// SPDX-License-Identifier: Apache-2.0
#include "fullshard/base/closest.h"

#include <algorithm>
#include <vector>

namespace fullshard::base {
namespace {

// Letters to insert, delete or replace to get from one word to the other (Levenshtein).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

}  // namespace

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  // A third of the letters may be wrong, or two of a short word.
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  const std::string* best = nullptr;
  for (const std::string& candidate : candidates) {
    // At least as many letters differ as one has more; a word may come from a hostile file.
    const size_t longer = std::max(word.size(), candidate.size());
    if (longer - std::min(word.size(), candidate.size()) >= least) continue;
    const size_t found = distance(word, candidate);
    if (found >= least) continue;
    least = found;
    best = &candidate;
  }
  if (best == nullptr || least >= best->size()) return std::nullopt;
  return *best;
}

}  // namespace fullshard::base
