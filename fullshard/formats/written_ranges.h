// SPDX-License-Identifier: Apache-2.0
// Which elements of a tensor have been written.
#pragma once

#include <cstdint>
#include <map>

namespace fullshard::formats {

class WrittenRanges {
 public:
  bool overlaps(int64_t begin, int64_t end) const;
  void add(int64_t begin, int64_t end);  // must not overlap
  bool covers(int64_t numel) const;

 private:
  std::map<int64_t, int64_t> ends_;  // begin -> end; neighbours are merged
};

}  // namespace fullshard::formats
