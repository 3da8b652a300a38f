// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_memory.h"

#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/huge_pages.h"

namespace fullshard::comm {
namespace {

constexpr int64_t kHugeClaim = 2 * kHugePageBytes;  // claims of this size begin at a huge page

}  // namespace

ShmMemory::ShmMemory(std::vector<std::shared_ptr<ShmMapping>> arenas,
                     std::shared_ptr<ShmMapping> common)
    : arenas_(std::move(arenas)), common_(std::move(common)) {}

DomainBlock& ShmMemory::block() const { return *reinterpret_cast<DomainBlock*>(common_->base()); }

std::optional<Place> ShmMemory::find(const void* begin, int64_t bytes, int rank) const {
  const auto in = [&](int index) {
    return Place{index, static_cast<const std::byte*>(begin) - region(index).base(), 0};
  };
  if (region(rank).contains(begin, bytes)) return in(rank);
  for (int index = num_ranks(); index >= 0; --index) {
    if (region(index).contains(begin, bytes)) return in(index);
  }
  return std::nullopt;
}

int64_t ShmMemory::take(Claim& claim, int64_t bytes, const char* what) const {
  uint64_t offset = claim.offset.load();
  if (offset == 0) {
    // Ranks that ask at once each advance the end and one wins: the losers' addresses stay unused
    // and cost no memory.
    const int64_t page = shm_page_bytes();
    const int64_t room = round_up(sizeof(DomainBlock), page);
    const int64_t alignment = bytes >= kHugeClaim ? kHugePageBytes : page;
    const int64_t addresses = round_up(bytes, page) + (alignment - page);
    const uint64_t mine =
        round_up(room + static_cast<int64_t>(block().end.fetch_add(addresses)), alignment);
    check(static_cast<int64_t>(mine) + bytes <= common_->bytes(),
          "shm: {} asks for {} of common memory, {} of its {} are taken; use smaller buffers", what,
          format_bytes(bytes), format_bytes(static_cast<int64_t>(mine)),
          format_bytes(common_->bytes()));
    if (claim.offset.compare_exchange_strong(offset, mine)) offset = mine;
  }
  uint64_t agreed = 0;
  if (!claim.bytes.compare_exchange_strong(agreed, bytes)) {
    check(static_cast<int64_t>(agreed) == bytes,
          "shm: ranks disagree: {} asks for {} bytes of common memory where another rank asked for "
          "{}; all ranks must make the same calls in the same order",
          what, bytes, agreed);
  }
  return static_cast<int64_t>(offset);
}

void ShmMemory::release(Claim& claim, int num_ranks) const {
  if (static_cast<int>(claim.released.fetch_add(1)) + 1 < num_ranks) return;
  common_->give_back(static_cast<int64_t>(claim.offset.load()),
                     static_cast<int64_t>(claim.bytes.load()));
}

}  // namespace fullshard::comm
