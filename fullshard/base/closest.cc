#include "fullshard/base/closest.h"

#include <algorithm>
#include <vector>

namespace fullshard {
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
  const auto best = std::min_element(candidates.begin(), candidates.end(),
                                     [&](const std::string& a, const std::string& b) {
                                       return distance(word, a) < distance(word, b);
                                     });
  // A third of the letters may be wrong, or two of a short word.
  if (best == candidates.end() || distance(word, *best) > std::max<size_t>(2, word.size() / 3) ||
      distance(word, *best) >= best->size()) {
    return std::nullopt;
  }
  return *best;
}

}  // namespace fullshard
