// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/atomic_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/write_problem.h"

namespace fullshard::data {
namespace {

[[noreturn]] void cannot_write(const std::string& path, int reason) {
  fail_as(base::kind_of_write_problem(reason), "{}: cannot be written ({}){}", path,
          std::strerror(reason),
          base::is_room_missing(reason) ? "; make room, or name another place" : "");
}

// Unique among processes, and among threads by the address of something on the stack.
std::string partial_name(const std::string& path) {
  const int here = 0;
  return fmt::format("{}.{}-{:x}.partial", path, ::getpid(), reinterpret_cast<uintptr_t>(&here));
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), partial_(partial_name(path_)) {
  if (base::is_special_file(path_)) {
    fail_as(ErrorKind::input, "{}: is no ordinary file; name another place", path_);
  }
  descriptor_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) cannot_write(path_, errno);
}

AtomicFile::AtomicFile(std::string path, std::string partial, int descriptor)
    : path_(std::move(path)), partial_(std::move(partial)), descriptor_(descriptor) {}

AtomicFile AtomicFile::in_memory(std::string name) {
  const int descriptor = ::memfd_create("fullshard-tokens", MFD_CLOEXEC);
  if (descriptor < 0) cannot_write(name, errno);
  return AtomicFile(std::move(name), "", descriptor);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
}

void AtomicFile::append(std::string_view bytes) {
  write_at(size_, bytes);
  size_ += static_cast<int64_t>(bytes.size());
}

void AtomicFile::write_at(int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) cannot_write(path_, errno);
    offset += written;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  // Some file systems report a full disk only here.
  if (::close(std::exchange(descriptor_, -1)) != 0) cannot_write(path_, errno);
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) cannot_write(path_, errno);
  partial_.clear();
}

int AtomicFile::take_descriptor() { return std::exchange(descriptor_, -1); }

}  // namespace fullshard::data
