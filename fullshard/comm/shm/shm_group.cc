// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_group.h"

#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_waiting.h"

namespace fullshard::comm {
namespace {

constexpr int64_t kClaimsBytes = round_up(sizeof(Claim) * ShmGroup::kMaxClaims, 4096);

int64_t index_of(int rank, uint64_t ticket) {
  return rank * kNumTickets + static_cast<int64_t>(ticket % kNumTickets);
}

int64_t slots_bytes(int size) {
  return round_up(static_cast<int64_t>(sizeof(CallSlot)) * kNumTickets * size, 4096);
}

}  // namespace

int64_t ShmGroup::block_bytes(int size) {
  return kClaimsBytes + slots_bytes(size) + kInlineBytes * kNumTickets * size;
}

ShmGroup::ShmGroup(std::shared_ptr<const ShmMemory> memory, int64_t offset, std::vector<int> ranks,
                   int rank, std::string name)
    : memory_(std::move(memory)),
      offset_(offset),
      ranks_(std::move(ranks)),
      rank_(rank),
      name_(std::move(name)) {}

Claim& ShmGroup::claim(int index) const {
  check(index < kMaxClaims, "shm: group {} has asked for common memory {} times; make fewer pieces",
        name_, kMaxClaims);
  return reinterpret_cast<Claim*>(memory_->common().base() + offset_)[index];
}

CallSlot& ShmGroup::slot(int rank, uint64_t ticket) const {
  std::byte* slots = memory_->common().base() + offset_ + kClaimsBytes;
  return reinterpret_cast<CallSlot*>(slots)[index_of(rank, ticket)];
}

Place ShmGroup::inline_place(int rank, uint64_t ticket) const {
  const int64_t begin = offset_ + kClaimsBytes + slots_bytes(size());
  return {memory_->num_ranks(), begin + kInlineBytes * index_of(rank, ticket), 0};
}

void ShmGroup::ring_others() const {
  for (const int rank : ranks_) {
    if (rank != ranks_[rank_]) ring(memory_->block().doorbells[rank]);
  }
}

}  // namespace fullshard::comm
