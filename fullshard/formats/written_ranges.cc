// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/written_ranges.h"

#include <iterator>

namespace fullshard::formats {

bool WrittenRanges::overlaps(int64_t begin, int64_t end) const {
  if (begin == end) return false;
  const auto next = ends_.lower_bound(begin);
  if (next != ends_.end() && next->first < end) return true;
  return next != ends_.begin() && std::prev(next)->second > begin;
}

void WrittenRanges::add(int64_t begin, int64_t end) {
  if (begin == end) return;
  const auto next = ends_.lower_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second == begin) {
    begin = std::prev(next)->first;
    ends_.erase(std::prev(next));
  }
  if (next != ends_.end() && next->first == end) {
    end = next->second;
    ends_.erase(next);
  }
  ends_[begin] = end;
}

bool WrittenRanges::covers(int64_t numel) const {
  if (numel == 0) return true;
  return ends_.size() == 1 && ends_.begin()->first == 0 && ends_.begin()->second == numel;
}

}  // namespace fullshard::formats
