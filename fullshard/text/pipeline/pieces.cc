// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/pipeline/pieces.h"

namespace fullshard::text {
namespace {

// Whether the part at `i` belongs to the one before it.
bool joins(const std::vector<Match>& matches, size_t i, SplitBehavior behavior) {
  const bool here = matches[i].is_match, before = matches[i - 1].is_match;
  switch (behavior) {
    case SplitBehavior::contiguous:
      return here == before;
    case SplitBehavior::merged_with_previous:
      return here && !before;
    case SplitBehavior::merged_with_next:
      return before && !here;
    case SplitBehavior::removed:
    case SplitBehavior::isolated:
      return false;
  }
  return false;
}

}  // namespace

void Pieces::append_split(const TextPiece& piece, SplitBehavior behavior) {
  if (behavior == SplitBehavior::isolated || behavior == SplitBehavior::removed) {
    for (const Match& match : matches_) {
      if (match.is_match && behavior == SplitBehavior::removed) continue;
      append_part(piece, match.begin, match.end);
    }
    return;
  }
  for (size_t i = 0; i < matches_.size();) {
    size_t end = i + 1;
    while (end < matches_.size() && joins(matches_, end, behavior)) ++end;
    append_part(piece, matches_[i].begin, matches_[end - 1].end);
    i = end;
  }
}

}  // namespace fullshard::text
