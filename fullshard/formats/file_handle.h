// SPDX-License-Identifier: Apache-2.0
// A file read and written at positions, so that several threads may share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fullshard::formats {

// Owns a file descriptor. Errors are of the kind `input` and name the file.
class FileHandle {
 public:
  static FileHandle open(const std::string& path);    // for reading: a regular file
  static FileHandle create(const std::string& path);  // for writing: the name must not exist yet

  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&&) = delete;
  FileHandle(const FileHandle&) = delete;
  FileHandle& operator=(const FileHandle&) = delete;
  ~FileHandle();

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  int descriptor() const { return descriptor_; }

  // Reads all bytes, or throws an error that names `what` was being read.
  void read_at(int64_t offset, void* data, int64_t bytes, std::string_view what) const;
  std::string read_text(int64_t offset, int64_t bytes, std::string_view what) const;

  void write_at(int64_t offset, const void* data, int64_t bytes);
  void sync();  // to the device

 private:
  FileHandle(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  int descriptor_;
  std::string path_;
  int64_t size_ = 0;
};

// Makes a rename in this folder last through a power cut.
void sync_folder_of(const std::string& path);

// Call before so many bytes are written there: an Error if an ordinary user has no room for them.
// Where the system does not report free space, only writing will fail.
void check_room(const std::string& path, int64_t bytes);

}  // namespace fullshard::formats
