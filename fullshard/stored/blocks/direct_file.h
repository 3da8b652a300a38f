// SPDX-License-Identifier: Apache-2.0
// Files written and read past the page cache if the file system supports that: the device moves
// the bytes from and to the program's memory while the processor does something else.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "fullshard/disk/direct_buffer.h"
#include "fullshard/disk/transfers.h"
#include "fullshard/formats/file_handle.h"

namespace fullshard::stored {

// Several threads may write different parts. Errors are of the kind `input` and name the file.
class DirectOutput {
 public:
  explicit DirectOutput(const std::string& path);  // nothing of this name may exist
  ~DirectOutput();
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;

  // Unaligned parts, the end of a file for example, go through the page cache.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  // The same as a transfer; when that has ended, complete() does what it left undone.
  disk::Transfer transfer(int64_t offset, char* data, int64_t bytes) const;
  void complete(const disk::Transfer& transfer, int64_t result);
  void sync();

 private:
  bool write_directly(int64_t offset, const char* data, int64_t bytes);

  formats::FileHandle file_;
  int descriptor_ = -1;  // for direct writing
  std::atomic<bool> is_direct_{false};
};

// Several threads may read. Errors are of the kind `input` and name the file.
class DirectInput {
 public:
  explicit DirectInput(const std::string& path);
  ~DirectInput();
  DirectInput(const DirectInput&) = delete;
  DirectInput& operator=(const DirectInput&) = delete;

  int64_t size() const { return file_.size(); }
  // From an aligned offset into a buffer with room for `bytes` rounded up to kDirectAlign.
  void read_at(int64_t offset, char* data, int64_t bytes, std::string_view what) const;
  // The same as a transfer; when that has ended, complete() does what it left undone.
  disk::Transfer transfer(int64_t offset, char* data, int64_t bytes) const;
  void complete(const disk::Transfer& transfer, int64_t result, int64_t bytes,
                std::string_view what) const;

 private:
  bool read_directly(int64_t offset, char* data, int64_t bytes) const;

  formats::FileHandle file_;
  int descriptor_ = -1;  // for direct reading
};

}  // namespace fullshard::stored
