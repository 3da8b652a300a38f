// SPDX-License-Identifier: Apache-2.0
// All the memory that the ranks of a domain share, as one process sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "fullshard/comm/shm/shm_control.h"
#include "fullshard/comm/shm/shm_mapping.h"

namespace fullshard::comm {

class ShmMemory {
 public:
  ShmMemory(std::vector<std::shared_ptr<ShmMapping>> arenas, std::shared_ptr<ShmMapping> common);

  int num_ranks() const { return static_cast<int>(arenas_.size()); }
  const std::shared_ptr<ShmMapping>& arena(int rank) const { return arenas_[rank]; }
  ShmMapping& common() const { return *common_; }
  DomainBlock& block() const;

  std::byte* address(const Place& place) const {
    return region(place.region).base() + place.offset;
  }
  // Where other ranks find these bytes; nothing if they are not in shared memory. `rank`'s own
  // arena is the likeliest place.
  std::optional<Place> find(const void* begin, int64_t bytes, int rank) const;

  // A piece of the common memory that all ranks of a group ask for under the same claim: the first
  // one takes it, the others find it, nobody waits. Zeroed, page-aligned.
  int64_t take(Claim& claim, int64_t bytes, const char* what) const;
  // The last of `num_ranks` ranks to say so gives the pages back.
  void release(Claim& claim, int num_ranks) const;

 private:
  ShmMapping& region(int index) const { return index == num_ranks() ? *common_ : *arenas_[index]; }

  std::vector<std::shared_ptr<ShmMapping>> arenas_;
  std::shared_ptr<ShmMapping> common_;
};

}  // namespace fullshard::comm
