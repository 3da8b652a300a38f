// SPDX-License-Identifier: Apache-2.0
// The checksum of one entry of a zip archive, summed while its bytes are read: in any order, in any
// pieces, by several threads.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/formats/file_handle.h"
#include "fullshard/formats/zip_archive.h"

namespace fullshard::formats {

// Throws an Error of the kind input: the bytes differ from those that were written.
[[noreturn]] void fail_entry_sum(const std::string& path, std::string_view what,
                                 std::string_view entry, uint32_t found, uint32_t written);

// Thread-safe. Sums of adjacent pieces are merged, so that nothing is read or summed twice.
class EntrySum {
 public:
  EntrySum(std::string path, std::string name, const ZipEntry& entry);

  // Adds bytes that were read from byte `offset` of the file on, inside the entry. With the last of
  // its bytes the sum is compared; an error names `what`, which was read.
  void add(int64_t offset, const char* data, int64_t bytes, std::string_view what);
  // Reads what has not been added yet, then compares.
  void complete(const FileHandle& file, std::string_view what);

  int64_t offset() const { return entry_.offset; }
  int64_t bytes() const { return entry_.bytes; }

 private:
  struct Range {
    int64_t begin = 0;  // bytes of the file
    int64_t end = 0;
  };
  struct Summed {
    int64_t end = 0;
    uint32_t sum = 0;
  };

  std::vector<Range> gaps(int64_t begin, int64_t end) const;  // call with the lock held
  void insert(Range range, uint32_t sum);
  bool is_whole() const;
  void compare(std::string_view what) const;

  std::string path_;
  std::string name_;
  ZipEntry entry_;
  mutable std::mutex mutex_;
  std::map<int64_t, Summed> summed_;  // by begin; no two touch
};

}  // namespace fullshard::formats
