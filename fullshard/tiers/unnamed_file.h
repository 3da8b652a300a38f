// SPDX-License-Identifier: Apache-2.0
// A file that only this process can reach and that is gone when it ends, however it ends.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::tiers {

// One thread. Errors (kind input) name the folder, what was found, and what to do.
class UnnamedFile {
 public:
  // In that folder, with so many bytes of its disk reserved. It has no name there, or loses it at
  // once, and mode 0600. A planned one is in no folder and takes no space.
  UnnamedFile(const std::string& folder, int64_t bytes, bool is_planned = false);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  // Reserves more: its size is `bytes` afterwards. The same errors as of the constructor, which
  // leave it as it was.
  void grow(int64_t bytes);

  const std::string& folder() const { return folder_; }
  int64_t bytes() const { return bytes_; }
  int plain() const { return plain_; }    // through the page cache
  int direct() const { return direct_; }  // past it; below 0: the file system refuses that

 private:
  void open();
  void open_planned();
  void reserve(int64_t bytes);
  void open_direct();
  void close();

  std::string folder_;
  int64_t bytes_ = 0;
  int plain_ = -1;
  int direct_ = -1;
  bool refuses_direct_ = false;
  const bool is_planned_;
};

}  // namespace fullshard::tiers
