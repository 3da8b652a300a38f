// SPDX-License-Identifier: Apache-2.0
#include "fullshard/text/models/merge_table.h"
#include "fullshard/text/unicode/space_mark.h"

#include <algorithm>
#include <array>
#include <functional>

namespace fullshard::text {
namespace {

constexpr size_t kFew = 40;  // up to this length, looking at all ranks is faster than a heap
constexpr uint32_t kNoRank = ~uint32_t{0};
constexpr int32_t kGone = -2;

}  // namespace

void MergeTable::insert(int32_t left, std::string_view left_text, int32_t right,
                        std::string_view right_text, Merge merge) {
  merges_.insert(uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right), merge);
  crosses_spaces_ |= right_text.starts_with(kSpaceMark) && !left_text.ends_with(kSpaceMark);
}

void MergeTable::apply(Workspace& workspace) const {
  if (workspace.ids.size() <= kFew) {
    apply_to_few(workspace.ids);
  } else {
    apply_to_many(workspace);
  }
}

void MergeTable::apply_to_few(std::vector<int32_t>& ids) const {
  size_t count = ids.size();
  if (count < 2) return;
  std::array<Merge, kFew> merges;  // merges[i]: the one of ids[i] and ids[i + 1]
  const auto look = [&](size_t i) {
    const Merge* found = find(ids[i], ids[i + 1]);
    merges[i] = found == nullptr ? Merge{kNoRank, 0} : *found;
  };
  for (size_t i = 0; i + 1 < count; ++i) look(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == kNoRank) break;
    ids[best] = merges[best].id;
    for (size_t i = best + 1; i + 1 < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i] = merges[i + 1];
    }
    --count;
    if (best > 0) look(best - 1);
    if (best + 1 < count) look(best);
  }
  ids.resize(count);
}

void MergeTable::push_candidate(Workspace& workspace, int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return;
  const auto& symbols = workspace.symbols;
  const Merge* found =
      find(symbols[static_cast<size_t>(left)].id, symbols[static_cast<size_t>(right)].id);
  if (found == nullptr) return;
  workspace.candidates.push_back(uint64_t{found->rank} << 32 | static_cast<uint32_t>(left));
  std::push_heap(workspace.candidates.begin(), workspace.candidates.end(), std::greater<>());
}

void MergeTable::apply_to_many(Workspace& workspace) const {
  auto& symbols = workspace.symbols;
  auto& candidates = workspace.candidates;
  const auto count = static_cast<int32_t>(workspace.ids.size());
  symbols.clear();
  candidates.clear();
  for (int32_t i = 0; i < count; ++i) {
    symbols.push_back({workspace.ids[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  }
  for (int32_t i = 0; i + 1 < count; ++i) push_candidate(workspace, i, i + 1);
  while (!candidates.empty()) {
    std::pop_heap(candidates.begin(), candidates.end(), std::greater<>());
    const uint64_t top = candidates.back();
    candidates.pop_back();
    const auto at = static_cast<int32_t>(top & 0xFFFFFFFFU);
    auto& left = symbols[static_cast<size_t>(at)];
    if (left.next < 0) continue;  // merged away, or the last one
    auto& right = symbols[static_cast<size_t>(left.next)];
    const Merge* found = find(left.id, right.id);
    if (found == nullptr || found->rank != top >> 32) continue;  // its pair no longer exists
    left.id = found->id;
    left.next = right.next;
    right.next = kGone;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    push_candidate(workspace, left.previous, at);
    push_candidate(workspace, at, left.next);
  }
  workspace.ids.clear();
  for (const auto& symbol : symbols) {
    if (symbol.next != kGone) workspace.ids.push_back(symbol.id);
  }
}

}  // namespace fullshard::text
