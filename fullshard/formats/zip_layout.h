// SPDX-License-Identifier: Apache-2.0
// Where the entries of a zip archive will lie, before any is written. They are stored as they are;
// the data of each begins at a multiple of 64 bytes, as torch.save places them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fullshard::formats {

struct ZipSlot {
  std::string name;
  int64_t bytes = 0;
  int64_t header = 0;  // where its header begins in the file
  int64_t offset = 0;  // where its data begin
  uint32_t checksum = 0;

  std::string header_bytes() const;  // with the checksum as it is now
};

class ZipLayout {
 public:
  size_t add(std::string name, int64_t bytes);  // returns its index

  std::vector<ZipSlot>& slots() { return slots_; }
  const ZipSlot& slot(size_t index) const { return slots_[index]; }

  // What follows the last entry: the directory, with the checksums as they are now.
  int64_t directory_offset() const { return end_; }
  std::string directory_bytes() const;

 private:
  std::vector<ZipSlot> slots_;
  int64_t end_ = 0;
};

}  // namespace fullshard::formats
