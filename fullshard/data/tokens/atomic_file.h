// SPDX-License-Identifier: Apache-2.0
// A file that appears whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::data {

// Written beside its place under another name; commit() moves it there, replacing what was. Without
// commit() nothing stays. An Error when something cannot be written, as on a full
// disk.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  // Memory that acts as a file; there is nothing to commit.
  static AtomicFile in_memory(std::string name);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  void append(std::string_view bytes);
  void write_at(int64_t offset, std::string_view bytes);
  int64_t size() const { return size_; }  // of what was appended
  void commit();
  int take_descriptor();  // the caller closes it; of one in memory
  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string partial, int descriptor);

  std::string path_;
  std::string partial_;  // empty: in memory, or committed
  int descriptor_ = -1;
  int64_t size_ = 0;
};

}  // namespace fullshard::data
