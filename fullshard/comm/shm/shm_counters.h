// SPDX-License-Identifier: Apache-2.0
// Counters of a group in the common memory, each in a cache line of its own.
#pragma once

#include <memory>

#include "fullshard/comm/communicator.h"
#include "fullshard/comm/shm/shm_group.h"
#include "fullshard/comm/shm/shm_rank.h"

namespace fullshard::comm {

class ShmCounters final : public SharedCounters {
 public:
  ShmCounters(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group, Claim& claim,
              int slots);
  ~ShmCounters() override;

  void publish(int slot, uint64_t value) override;
  void wait_for_all(int slot, uint64_t value, std::string_view what,
                    std::string_view unit) override;
  uint64_t value(int slot, int rank) const override;

 private:
  std::atomic<uint64_t>& counter(int slot, int rank) const;

  std::shared_ptr<ShmRank> rank_;
  std::shared_ptr<const ShmGroup> group_;
  Claim& claim_;
  int slots_;
  Counter* counters_;
};

}  // namespace fullshard::comm
