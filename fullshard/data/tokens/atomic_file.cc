// SPDX-License-Identifier: Apache-2.0
#include "fullshard/data/tokens/atomic_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/base/file_kind.h"
#include "fullshard/base/folder_names.h"
#include "fullshard/base/write_problem.h"

namespace fullshard::data {
namespace {

[[noreturn]] void cannot_write(const std::string& path, int reason) {
  fail_as(base::kind_of_write_problem(reason), "{}: cannot be written ({}){}", path,
          std::strerror(reason),
          base::is_room_missing(reason) ? "; make room, or name another place" : "");
}

constexpr std::string_view kPartEnding = ".partial";

// Unique among processes, and among threads by the address of an object on the stack.
std::string partial_name(const std::string& path) {
  const int here = 0;
  return fmt::format("{}.{}-{:x}{}", path, ::getpid(), reinterpret_cast<uintptr_t>(&here),
                     kPartEnding);
}

// The name of the file that a partial_name() belongs to; empty for any other name.
std::string_view target_of_part(std::string_view name) {
  if (!name.ends_with(kPartEnding)) return {};
  name.remove_suffix(kPartEnding.size());
  const size_t dot = name.rfind('.'), dash = name.rfind('-');
  if (dot == std::string_view::npos || dash == std::string_view::npos || dash < dot) return {};
  const auto process = name.substr(dot + 1, dash - dot - 1), address = name.substr(dash + 1);
  const bool is_part =
      !process.empty() && process.find_first_not_of("0123456789") == std::string_view::npos &&
      !address.empty() && address.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return is_part ? name.substr(0, dot) : std::string_view();
}

std::string folder_of_file(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

std::string name_of_file(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void remove_where_abandoned(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (file < 0) return;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  ::close(file);
}

template <class IsOfInterest>
void remove_parts(const std::string& folder, const IsOfInterest& is_of_interest) {
  for (const std::string& name : base::names_in_folder(folder)) {
    const auto target = target_of_part(name);
    if (!target.empty() && is_of_interest(target)) {
      remove_where_abandoned(fmt::format("{}/{}", folder, name));
    }
  }
}

std::string path_of_descriptor(int descriptor) {
  return fmt::format("/proc/self/fd/{}", descriptor);
}

// Returns -1 if the file system has none, or if the file could not be named later.
int open_nameless(const std::string& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (file < 0) return -1;
  const bool can_be_named = ::access(path_of_descriptor(file).c_str(), F_OK) == 0;
  if (can_be_named && ::flock(file, LOCK_EX) == 0) return file;
  ::close(file);
  return -1;
}

// Locks the file before another process can take it for abandoned or create it again; -1 with
// errno.
int open_named(const std::string& path) {
  while (true) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file < 0) return -1;
    ::flock(file, LOCK_EX);  // on a file system without locks, nothing is removed either
    struct stat facts {};
    if (::fstat(file, &facts) == 0 && facts.st_nlink > 0) return file;
    ::close(file);
  }
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)), partial_(partial_name(path_)) {
  if (base::is_special_file(path_)) {
    fail_as(ErrorKind::input, "{}: is not a regular file; name another place", path_);
  }
  const std::string folder = folder_of_file(path_);
  remove_parts(folder,
               [name = name_of_file(path_)](std::string_view target) { return target == name; });
  descriptor_ = open_nameless(folder);
  if (descriptor_ >= 0) return;
  descriptor_ = open_named(partial_);
  if (descriptor_ < 0) cannot_write(path_, errno);
  is_named_ = true;
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
      partial_(std::move(other.partial_)),
      is_named_(std::exchange(other.is_named_, false)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_) {}

AtomicFile::~AtomicFile() {
  if (is_named_) ::unlink(partial_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
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
  // Some file systems report a full disk only when a descriptor is closed; the lock goes with the
  // last one.
  const int copy = ::fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0 || ::close(copy) != 0) cannot_write(path_, errno);
  if (!is_named_) {
    const std::string own = path_of_descriptor(descriptor_);
    if (::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      cannot_write(path_, errno);
    }
    is_named_ = true;
  }
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) cannot_write(path_, errno);
  is_named_ = false;
  ::close(std::exchange(descriptor_, -1));
}

int AtomicFile::take_descriptor() { return std::exchange(descriptor_, -1); }

void remove_abandoned_parts(const std::string& folder, std::string_view ending) {
  remove_parts(folder, [&](std::string_view target) { return target.ends_with(ending); });
}

}  // namespace fullshard::data
