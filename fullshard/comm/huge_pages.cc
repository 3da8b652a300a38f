// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/huge_pages.h"

#include <sys/mman.h>

#include "fullshard/base/bytes.h"

namespace fullshard::comm {
namespace {

constexpr int kCollapse = 25;  // MADV_COLLAPSE, which older C libraries do not name

struct HugeRange {
  std::byte* begin = nullptr;
  int64_t bytes = 0;
};

// The huge pages that lie wholly inside.
HugeRange inside(std::byte* begin, int64_t bytes) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin));
  const int64_t skipped = round_up(address, kHugePageBytes) - address;
  const int64_t left = bytes - skipped;
  if (left < kHugePageBytes) return {};
  return {begin + skipped, left / kHugePageBytes * kHugePageBytes};
}

}  // namespace

void wish_for_huge_pages(std::byte* begin, int64_t bytes) {
  const HugeRange range = inside(begin, bytes);
  if (range.bytes > 0) ::madvise(range.begin, range.bytes, MADV_HUGEPAGE);
}

void join_huge_pages(std::byte* begin, int64_t bytes) {
  const HugeRange range = inside(begin, bytes);
  if (range.bytes == 0) return;
  // The kernel joins what has at least one page; reading makes one and changes no value.
  for (int64_t offset = 0; offset < range.bytes; offset += kHugePageBytes) {
    [[maybe_unused]] const std::byte touched =
        *static_cast<const volatile std::byte*>(range.begin + offset);
  }
  ::madvise(range.begin, range.bytes, kCollapse);
}

}  // namespace fullshard::comm
