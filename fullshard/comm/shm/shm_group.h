// SPDX-License-Identifier: Apache-2.0
// The control block of one group of ranks: a ring of slots per rank in which it publishes its part
// of each collective, and the table of the group's pieces of common memory.
//
//   claims [kMaxClaims] | slots [rank][ticket % kNumTickets] | small inputs [rank][ticket % ...]
#pragma once

#include <string>
#include <vector>

#include "fullshard/comm/shm/shm_control.h"
#include "fullshard/comm/shm/shm_memory.h"

namespace fullshard::comm {

class ShmGroup {
 public:
  static constexpr int kMaxClaims = 65536;
  static int64_t block_bytes(int size);

  // `offset` of the block in the common memory; `ranks` of the domain, in the order of the group.
  ShmGroup(std::shared_ptr<const ShmMemory> memory, int64_t offset, std::vector<int> ranks,
           int rank, std::string name);

  const ShmMemory& memory() const { return *memory_; }
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int domain_rank(int rank) const { return ranks_[rank]; }

  Claim& claim(int index) const;
  CallSlot& slot(int rank, uint64_t ticket) const;
  // Where the rank's input of at most kInlineBytes lies.
  Place inline_place(int rank, uint64_t ticket) const;

  // Wakes the others after a store to a slot or counter.
  void ring_others() const;

 private:
  std::shared_ptr<const ShmMemory> memory_;
  int64_t offset_;
  std::vector<int> ranks_;
  int rank_;
  std::string name_;
};

}  // namespace fullshard::comm
