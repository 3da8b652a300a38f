// SPDX-License-Identifier: Apache-2.0
#include "fullshard/formats/file_handle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/formats/input_error.h"

namespace fullshard::formats {
namespace {

// Linux moves at most 2 GiB less a page in one call.
constexpr int64_t kMostPerCall = int64_t{1} << 30;

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

FileHandle FileHandle::open(const std::string& path) {
  // O_NONBLOCK: opening a pipe of this name would wait for a writer for ever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  check_system(descriptor >= 0, "{}: cannot be opened", path);
  FileHandle file(descriptor, path);
  struct stat facts = {};
  check_system(::fstat(descriptor, &facts) == 0, "{}: cannot be examined", path);
  check_input(S_ISREG(facts.st_mode), "{}: is not a regular file", path);
  file.size_ = facts.st_size;
  return file;
}

FileHandle FileHandle::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0 && errno == EEXIST) {
    fail_input("{}: already exists; remove it unless another program is still writing it", path);
  }
  check_system(descriptor >= 0, "{}: cannot be created", path);
  return FileHandle(descriptor, path);
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : descriptor_(other.descriptor_), path_(std::move(other.path_)), size_(other.size_) {
  other.descriptor_ = -1;
}

FileHandle::~FileHandle() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileHandle::read_at(int64_t offset, void* data, int64_t bytes, std::string_view what) const {
  auto* target = static_cast<char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const auto part = static_cast<size_t>(std::min(bytes - done, kMostPerCall));
    const ssize_t got = ::pread(descriptor_, target + done, part, offset + done);
    if (got < 0 && errno == EINTR) continue;
    check_system(got >= 0, "{}: {}: cannot be read", path_, what);
    check_input(got > 0,
                "{}: {}: the file ends at byte {}, expected bytes {} to {}; the file is "
                "truncated: copy it again",
                path_, what, offset + done, offset, offset + bytes);
    done += got;
  }
}

std::string FileHandle::read_text(int64_t offset, int64_t bytes, std::string_view what) const {
  std::string text(static_cast<size_t>(bytes), '\0');
  read_at(offset, text.data(), bytes, what);
  return text;
}

void FileHandle::write_at(int64_t offset, const void* data, int64_t bytes) {
  const auto* source = static_cast<const char*>(data);
  int64_t done = 0;
  while (done < bytes) {
    const auto part = static_cast<size_t>(std::min(bytes - done, kMostPerCall));
    const ssize_t put = ::pwrite(descriptor_, source + done, part, offset + done);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = ENOSPC;
    check_system(put > 0, "{}: cannot be written at byte {}", path_, offset + done);
    done += put;
  }
}

void FileHandle::sync() {
  check_system(::fsync(descriptor_) == 0, "{}: cannot be flushed to disk", path_);
}

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check_system(descriptor >= 0, "{}: cannot be opened", folder);
  // EINVAL: this file system does not support it.
  const bool done = ::fsync(descriptor) == 0 || errno == EINVAL;
  const int problem = errno;
  ::close(descriptor);
  check_input(done, "{}: cannot be flushed to disk: {}", folder, std::strerror(problem));
}

void check_room(const std::string& path, int64_t bytes) {
  struct statvfs facts = {};
  if (::statvfs(folder_of(path).c_str(), &facts) != 0) return;
  const int64_t room = static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
  check(room >= bytes, "{}: needs {} on disk, {} are free there", path, format_bytes(bytes),
        format_bytes(room));
}

}  // namespace fullshard::formats
