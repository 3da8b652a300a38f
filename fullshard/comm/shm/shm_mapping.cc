// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/huge_pages.h"

namespace fullshard::comm {
namespace {

constexpr int kNotReserved = MAP_NORESERVE;

std::byte* map(int64_t bytes, int flags, int descriptor) {
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0);
  return base == MAP_FAILED ? nullptr : static_cast<std::byte*>(base);
}

// At a multiple of the huge page, without which a file cannot have huge pages in its mapping.
std::byte* map_aligned(int64_t bytes, int descriptor) {
  const int64_t reserved = bytes + kHugePageBytes;
  void* addresses = ::mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (addresses == MAP_FAILED) return nullptr;
  auto* begin = static_cast<std::byte*>(addresses);
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  std::byte* base = begin + (round_up(address, kHugePageBytes) - address);
  const int flags = MAP_SHARED | MAP_FIXED | kNotReserved;
  if (::mmap(base, bytes, PROT_READ | PROT_WRITE, flags, descriptor, 0) == MAP_FAILED) {
    const int reason = errno;
    ::munmap(begin, reserved);
    errno = reason;
    return nullptr;
  }
  std::byte* end = base + round_up(bytes, shm_page_bytes());
  if (base > begin) ::munmap(begin, base - begin);
  if (end < begin + reserved) ::munmap(end, begin + reserved - end);
  return base;
}

std::byte* map_shared(int descriptor, int64_t bytes, const std::string& owner) {
  std::byte* base = map_aligned(bytes, descriptor);
  check(base != nullptr,
        "shm: cannot map {} of addresses for the shared memory of {}: {}; raise the limit on "
        "virtual memory (ulimit -v) or use backend gloo",
        format_bytes(bytes), owner, std::strerror(errno));
  return base;
}

}  // namespace

std::shared_ptr<ShmMapping> ShmMapping::for_threads(int64_t bytes, PageSize pages) {
  constexpr int64_t kLeast = 64 * kMiB;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | kNotReserved;
  std::byte* base = map(bytes, flags, -1);
  while (base == nullptr && bytes > kLeast) {
    bytes = round_up(bytes / 2, shm_page_bytes());
    base = map(bytes, flags, -1);
  }
  check(base != nullptr, "shm: cannot map {} of addresses for ranks as threads: {}",
        format_bytes(bytes), std::strerror(errno));
  if (pages == PageSize::huge) wish_for_huge_pages(base, bytes);
  return std::make_shared<ShmMapping>(base, bytes, ShmDescriptor());
}

std::shared_ptr<ShmMapping> ShmMapping::create(int64_t bytes, const std::string& owner) {
  ShmDescriptor descriptor(::memfd_create("fullshard", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check(descriptor.is_open(), "shm: cannot make shared memory for {}: memfd_create: {}", owner,
        std::strerror(errno));
  // Not inside check(): arguments may be evaluated in any order, and errno with them.
  const bool is_reserved =
      ::fchmod(descriptor.get(), 0600) == 0 && ::ftruncate(descriptor.get(), bytes) == 0;
  check(is_reserved,
        "shm: cannot reserve {} of shared memory for {}: {}; raise the limit on file sizes "
        "(ulimit -f) or use backend gloo",
        format_bytes(bytes), owner, std::strerror(errno));
  // A rank that shrank its file would end the others with SIGBUS.
  ::fcntl(descriptor.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  std::byte* base = map_shared(descriptor.get(), bytes, owner);
  return std::make_shared<ShmMapping>(base, bytes, std::move(descriptor));
}

std::shared_ptr<ShmMapping> ShmMapping::adopt(ShmDescriptor descriptor, const std::string& owner) {
  struct stat status = {};
  const bool is_usable = ::fstat(descriptor.get(), &status) == 0 && status.st_size > 0;
  check(is_usable, "shm: the memory that {} passed on is not usable: {}", owner,
        std::strerror(errno));
  std::byte* base = map_shared(descriptor.get(), status.st_size, owner);
  return std::make_shared<ShmMapping>(base, status.st_size, std::move(descriptor));
}

ShmMapping::ShmMapping(std::byte* base, int64_t bytes, ShmDescriptor descriptor)
    : base_(base),
      bytes_(bytes),
      descriptor_(std::move(descriptor)),
      is_memfd_(descriptor_.is_open()) {}

ShmMapping::~ShmMapping() { ::munmap(base_, bytes_); }

bool ShmMapping::contains(const void* begin, int64_t bytes) const {
  const auto* first = static_cast<const std::byte*>(begin);
  return first >= base_ && first <= base_ + bytes_ && base_ + bytes_ - first >= bytes;
}

void ShmMapping::use_huge_pages(int64_t offset, int64_t bytes) {
  if (is_memfd_) join_huge_pages(base_ + offset, bytes);
}

void ShmMapping::give_back(int64_t offset, int64_t bytes) {
  const int64_t page = shm_page_bytes();
  const int64_t begin = round_up(offset, page);
  const int64_t end = (offset + bytes) / page * page;
  if (begin >= end) return;
  ::madvise(base_ + begin, end - begin, is_memfd_ ? MADV_REMOVE : MADV_DONTNEED);
}

int64_t shm_page_bytes() { return ::sysconf(_SC_PAGESIZE); }

int64_t shm_arena_bytes(int num_ranks) {
  constexpr int64_t kAddressable = int64_t{32} << 40;  // well inside 47 bits
  const int64_t memory = ::sysconf(_SC_PHYS_PAGES) * shm_page_bytes();
  return std::min(memory, kAddressable / (num_ranks + 4) / shm_page_bytes() * shm_page_bytes());
}

}  // namespace fullshard::comm
