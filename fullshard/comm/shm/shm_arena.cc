// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/huge_pages.h"
#include "fullshard/comm/shm/shm_mapping.h"

namespace fullshard::comm {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kLarge = 64 * kKiB;
constexpr int64_t kLargeAlignment = 4 * kKiB;

constexpr int64_t kHuge = 2 * kHugePageBytes;

int64_t alignment_of(int64_t bytes) {
  if (bytes >= kHuge) return kHugePageBytes;
  return bytes >= kLarge ? kLargeAlignment : kAlignment;
}

}  // namespace

ShmArena::ShmArena(std::shared_ptr<ShmMapping> mapping, std::string owner)
    : mapping_(std::move(mapping)), owner_(std::move(owner)) {}

ShmArena::Block ShmArena::allocate(const std::shared_ptr<ShmArena>& arena, int64_t bytes) {
  const int64_t offset = arena->take(bytes);
  if (bytes >= kHuge) arena->use_huge_pages(offset, bytes);
  return Block(arena->mapping_->base() + offset,
               [arena, offset](std::byte*) { arena->give(offset); });
}

int64_t ShmArena::take(int64_t asked) {
  const int64_t alignment = alignment_of(asked);
  const int64_t bytes = round_up(std::max<int64_t>(asked, 1), std::min(alignment, kLargeAlignment));
  const std::lock_guard lock(mutex_);
  // The tightest hole, so that large ones stay whole; there are few of them.
  auto best = free_.end();
  for (auto hole = free_.begin(); hole != free_.end(); ++hole) {
    const int64_t usable = hole->first + hole->second - round_up(hole->first, alignment);
    if (usable >= bytes && (best == free_.end() || hole->second < best->second)) best = hole;
  }
  int64_t offset = round_up(end_, alignment);
  if (best != free_.end()) {
    const auto [begin, length] = *best;
    offset = round_up(begin, alignment);
    free_.erase(best);
    if (offset > begin) free_[begin] = offset - begin;
    const int64_t rest = begin + length - (offset + bytes);
    if (rest > 0) free_[offset + bytes] = rest;
  } else {
    check(
        offset + bytes <= mapping_->bytes(),
        "shm: {} asks for {} of shared memory and already uses {}, which is more than the {} that "
        "this machine has for it; use more ranks on other hosts or smaller buffers",
        owner_, format_bytes(asked), format_bytes(in_use_), format_bytes(mapping_->bytes()));
    if (offset > end_) free_[end_] = offset - end_;
    end_ = offset + bytes;
  }
  used_[offset] = bytes;
  in_use_ += bytes;
  return offset;
}

void ShmArena::use_huge_pages(int64_t offset, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t first = offset / kHugePageBytes, end = (offset + bytes) / kHugePageBytes;
  if (static_cast<int64_t>(has_huge_page_.size()) < end) has_huge_page_.resize(end);
  const auto begin = has_huge_page_.begin();
  if (std::find(begin + first, begin + end, false) == begin + end) return;
  mapping_->use_huge_pages(offset, bytes);
  std::fill(begin + first, begin + end, true);
}

void ShmArena::give(int64_t offset) {
  const std::lock_guard lock(mutex_);
  const auto block = used_.find(offset);
  int64_t bytes = block->second;
  used_.erase(block);
  in_use_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

int64_t ShmArena::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

int64_t ShmArena::bytes_touched() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

}  // namespace fullshard::comm
