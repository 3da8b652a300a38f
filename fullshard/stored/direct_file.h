// Files written and read past the page cache where the file system can do that: the device moves
// the bytes from and to the program's memory while the processor does something else.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fullshard/formats/file_handle.h"
#include "fullshard/stored/transfers.h"

namespace fullshard {

inline constexpr int64_t kDirectAlign = 4096;  // of memory, offset and length; fits every device

// Memory for direct transfers. Empty until reserve().
class DirectBuffer {
 public:
  void reserve(int64_t bytes);                              // contents are lost when it grows
  void adopt(std::shared_ptr<char> memory, int64_t bytes);  // instead of memory of its own
  char* data() { return bytes_.get(); }

 private:
  std::shared_ptr<char> bytes_;
  int64_t size_ = 0;
};

// Several threads may write different parts. Errors are of the kind `input` and name the file.
class DirectOutput {
 public:
  explicit DirectOutput(const std::string& path);  // nothing of this name exists
  ~DirectOutput();
  DirectOutput(const DirectOutput&) = delete;
  DirectOutput& operator=(const DirectOutput&) = delete;

  // What is not aligned, the end of a file for example, goes through the page cache.
  void write_at(int64_t offset, const void* data, int64_t bytes);
  // The same as a transfer; when that has ended, complete() does what it left undone.
  Transfer transfer(int64_t offset, char* data, int64_t bytes) const;
  void complete(const Transfer& transfer, int64_t result);
  void sync();

 private:
  bool write_directly(int64_t offset, const char* data, int64_t bytes);

  FileHandle file_;
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
  Transfer transfer(int64_t offset, char* data, int64_t bytes) const;
  void complete(const Transfer& transfer, int64_t result, int64_t bytes,
                std::string_view what) const;

 private:
  bool read_directly(int64_t offset, char* data, int64_t bytes) const;

  FileHandle file_;
  int descriptor_ = -1;  // for direct reading
};

}  // namespace fullshard
