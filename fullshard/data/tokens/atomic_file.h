// SPDX-License-Identifier: Apache-2.0
// A file that appears either whole or not at all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fullshard::data {

// Written in the folder of its path: without a name, so that nothing of it stays however the
// process ends, or, on a file system without such files, as PATH.PID-ADDRESS.partial; commit()
// gives it its name, replacing an older file. Without commit() nothing stays. Partial files of the
// same path whose processes are gone are removed. Throws Error when something cannot be written, as
// on a full disk.
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
  int64_t size() const { return size_; }  // number of bytes appended
  void commit();
  int take_descriptor();  // the caller closes it; only for a file in memory
  const std::string& path() const { return path_; }

 private:
  AtomicFile(std::string path, std::string partial, int descriptor);

  std::string path_;
  std::string partial_;    // empty: in memory
  bool is_named_ = false;  // it has that name
  int descriptor_ = -1;    // locked, so that it is not taken for abandoned
  int64_t size_ = 0;
};

// Removes partial files whose names end in `ending` and whose processes are gone: no process holds
// a lock on them. A folder that cannot be read has none.
void remove_abandoned_parts(const std::string& folder, std::string_view ending);

}  // namespace fullshard::data
