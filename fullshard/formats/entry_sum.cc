// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/entry_sum.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/formats/crc32.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {

void fail_entry_sum(const std::string& path, std::string_view what, std::string_view entry,
                    uint32_t found, uint32_t written) {
  fail_input(
      "{}: {}: entry '{}' has the checksum {:08x}, expected {:08x}; the file is damaged: "
      "copy it again",
      path, what, entry, found, written);
}

EntrySum::EntrySum(std::string path, std::string name, const ZipEntry& entry)
    : path_(std::move(path)), name_(std::move(name)), entry_(entry) {}

std::vector<EntrySum::Range> EntrySum::gaps(int64_t begin, int64_t end) const {
  std::vector<Range> found;
  auto next = summed_.upper_bound(begin);
  if (next != summed_.begin()) begin = std::max(begin, std::prev(next)->second.end);
  for (; begin < end; ++next) {
    const int64_t stop = next == summed_.end() ? end : std::min(end, next->first);
    if (begin < stop) found.push_back({begin, stop});
    if (next == summed_.end()) break;
    begin = std::max(begin, next->second.end);
  }
  return found;
}

void EntrySum::insert(Range range, uint32_t sum) {
  const auto after = summed_.find(range.end);
  if (after != summed_.end()) {
    sum = crc32_of_both(sum, after->second.sum, after->second.end - range.end);
    range.end = after->second.end;
    summed_.erase(after);
  }
  const auto next = summed_.lower_bound(range.begin);
  if (next != summed_.begin() && std::prev(next)->second.end == range.begin) {
    Summed& before = std::prev(next)->second;
    before.sum = crc32_of_both(before.sum, sum, range.end - range.begin);
    before.end = range.end;
  } else {
    summed_.emplace(range.begin, Summed{range.end, sum});
  }
}

bool EntrySum::is_whole() const {
  return summed_.size() == 1 && summed_.begin()->first == entry_.offset &&
         summed_.begin()->second.end == entry_.offset + entry_.bytes;
}

void EntrySum::compare(std::string_view what) const {
  const uint32_t sum = summed_.begin()->second.sum;
  if (sum != entry_.checksum) fail_entry_sum(path_, what, name_, sum, entry_.checksum);
}

void EntrySum::add(int64_t offset, const char* data, int64_t bytes, std::string_view what) {
  std::vector<Range> fresh;
  {
    const std::lock_guard lock(mutex_);
    fresh = gaps(offset, offset + bytes);
  }
  for (const Range& range : fresh) {
    const uint32_t sum = crc32(0, data + (range.begin - offset), range.end - range.begin);
    const std::lock_guard lock(mutex_);
    // Another thread may have read the same meanwhile; complete() reads what is missing.
    const auto left = gaps(range.begin, range.end);
    if (left.size() != 1 || left[0].begin != range.begin || left[0].end != range.end) continue;
    insert(range, sum);
    if (is_whole()) compare(what);
  }
}

void EntrySum::complete(const FileHandle& file, std::string_view what) {
  if (entry_.bytes == 0) return;
  std::vector<Range> rest;
  {
    const std::lock_guard lock(mutex_);
    if (is_whole()) return compare(what);
    rest = gaps(entry_.offset, entry_.offset + entry_.bytes);
  }
  std::string block;
  for (const Range& range : rest) {
    for (int64_t at = range.begin; at < range.end; at += kMiB) {
      const int64_t bytes = std::min(kMiB, range.end - at);
      block.resize(static_cast<size_t>(bytes));
      file.read_at(at, block.data(), bytes, what);
      add(at, block.data(), bytes, what);
    }
  }
}

}  // namespace fullshard::formats
