// SPDX-License-Identifier: Apache-2.0
// A file that only this process can reach and that is gone when it ends, however it ends.
#pragma once

#include <cstdint>
#include <string>

namespace fullshard::tiers {

// Which of its bytes have blocks of the disk.
enum class FileSpace {
  reserved,  // all, so that a full disk is an error before anything is written
  sparse,    // those that reserve_part() was asked for
  planned,   // none: it is in no folder, and nobody writes to it
};

// One thread. Errors (kind input) name the folder, what was found, and what to do.
class UnnamedFile {
 public:
  // In that folder. It has no name there, or loses it at once, and mode 0600.
  UnnamedFile(const std::string& folder, int64_t bytes, FileSpace space = FileSpace::reserved);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  // Its size is `bytes` afterwards. The same errors as of the constructor, which leave it as it
  // was.
  void grow(int64_t bytes);
  // Of a sparse file, before it is written there.
  void reserve_part(int64_t begin, int64_t bytes);

  const std::string& folder() const { return folder_; }
  int64_t bytes() const { return bytes_; }
  int plain() const { return plain_; }    // through the page cache
  int direct() const { return direct_; }  // past it; below 0: the file system refuses that

 private:
  void open();
  void open_planned();
  void reserve(int64_t begin, int64_t bytes) const;
  void lengthen(int64_t bytes) const;
  void check_limit(int64_t bytes) const;
  void open_direct();
  void close();

  std::string folder_;
  int64_t bytes_ = 0;
  int plain_ = -1;
  int direct_ = -1;
  bool refuses_direct_ = false;
  const FileSpace space_;
};

}  // namespace fullshard::tiers
