// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tiers/unnamed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/base/printable.h"
#include "fullshard/disk/direct_buffer.h"
#include "fullshard/disk/transfers.h"

namespace fullshard::tiers {
namespace {

// What a program without privileges may still use.
int64_t free_bytes(int descriptor) {
  struct statvfs facts {};
  if (::fstatvfs(descriptor, &facts) != 0) return 0;
  return static_cast<int64_t>(facts.f_bavail) * static_cast<int64_t>(facts.f_frsize);
}

// 0, or an errno. File systems without fallocate() are filled block by block.
int reserve_blocks(int descriptor, int64_t begin, int64_t bytes) {
  while (true) {
    if (::fallocate(descriptor, 0, begin, bytes) == 0) return 0;
    if (errno == EOPNOTSUPP) return ::posix_fallocate(descriptor, begin, bytes);
    if (errno != EINTR) return errno;
  }
}

}  // namespace

UnnamedFile::UnnamedFile(const std::string& folder, int64_t bytes, FileSpace space)
    : folder_(folder), space_(space) {
  try {
    space_ == FileSpace::planned ? open_planned() : open();
    grow(bytes);
  } catch (...) {
    close();
    throw;
  }
}

UnnamedFile::~UnnamedFile() { close(); }

void UnnamedFile::close() {
  if (direct_ >= 0) ::close(direct_);
  if (plain_ >= 0) ::close(plain_);
}

void UnnamedFile::open() {
  plain_ = ::open(folder_.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  // Kernels and file systems without O_TMPFILE: a name for the shortest time.
  if (plain_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string name = folder_ + "/.fullshard-tier-XXXXXX";
    plain_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (plain_ >= 0) ::unlink(name.c_str());
  }
  if (plain_ >= 0) return;
  const int why = errno;
  fail_as(ErrorKind::input,
          "offload: no file can be made in '{}': {}; name a folder on a local disk that exists and "
          "that this user may write to",
          base::printable(folder_), std::strerror(why));
}

// All of it is a hole until somebody writes there.
void UnnamedFile::open_planned() {
  plain_ = ::memfd_create("fullshard-plan", MFD_CLOEXEC);
  check(plain_ >= 0, "offload: a file for a plan: {}", std::strerror(errno));
  refuses_direct_ = true;
}

void UnnamedFile::grow(int64_t bytes) {
  if (bytes > bytes_) {
    space_ == FileSpace::reserved ? reserve(bytes_, bytes - bytes_) : lengthen(bytes);
    bytes_ = bytes;
  }
  if (direct_ < 0 && !refuses_direct_) open_direct();
}

void UnnamedFile::reserve_part(int64_t begin, int64_t bytes) {
  check(begin >= 0 && bytes >= 0 && begin <= bytes_ && bytes <= bytes_ - begin,
        "offload: bytes {} to {} of a file of {}", begin, begin + bytes, bytes_);
  if (space_ == FileSpace::sparse && bytes > 0) reserve(begin, bytes);
}

void UnnamedFile::lengthen(int64_t bytes) const {
  check_limit(bytes);
  check(::ftruncate(plain_, bytes) == 0, "offload: a file of {} in '{}': {}", format_bytes(bytes),
        base::printable(folder_), std::strerror(errno));
}

// Asked first: a file that grows beyond it would end the program with SIGXFSZ.
void UnnamedFile::check_limit(int64_t bytes) const {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<uint64_t>(bytes) > limit.rlim_cur) {
    fail_as(ErrorKind::no_fit,
            "offload: {} are needed in '{}', but a file may only have {} here; raise the limit "
            "(ulimit -f)",
            format_bytes(bytes), base::printable(folder_),
            format_bytes(static_cast<int64_t>(limit.rlim_cur)));
  }
}

// Blocks are taken now, so that a full disk is an error before the first step and never later.
void UnnamedFile::reserve(int64_t begin, int64_t bytes) const {
  check_limit(begin + bytes);
  // Asked before as well: fallocate() would fill the disk to its end, also for others, to find out.
  const int64_t left = free_bytes(plain_);
  const int why = bytes > left ? ENOSPC : reserve_blocks(plain_, begin, bytes);
  if (why == 0) return;
  fail_as(
      ErrorKind::no_fit,
      "offload: {} are needed in '{}', where {} are free: {}; free some space, or name a folder "
      "on another disk",
      format_bytes(bytes), base::printable(folder_), format_bytes(left), std::strerror(why));
}

// A second description of the same file: it has no name by which it could be opened again. Some
// file systems take the flag and refuse the first transfer.
void UnnamedFile::open_direct() {
  if (bytes_ < disk::kDirectAlign) return;  // nothing to try it with
  direct_ = ::open(fmt::format("/proc/self/fd/{}", plain_).c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  if (direct_ >= 0) {
    disk::DirectBuffer buffer;
    buffer.reserve(disk::kDirectAlign);
    const int64_t got = disk::move_bytes(
        {.descriptor = direct_, .data = buffer.data(), .bytes = disk::kDirectAlign});
    if (got == disk::kDirectAlign) return;
    ::close(direct_);
    direct_ = -1;
  }
  refuses_direct_ = true;
}

}  // namespace fullshard::tiers
