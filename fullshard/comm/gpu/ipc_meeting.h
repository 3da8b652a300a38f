// SPDX-License-Identifier: Apache-2.0
// Where the hosts of ranks that share a GPU meet: what each brings to a call lies in memory that
// all of them see.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gpu/ipc_memory.h"

namespace fullshard::comm {

struct IpcOffer {
  Operation operation = Operation::barrier;
  int64_t bytes = 0;      // of the whole call: everyone's are the same
  int64_t row_bytes = 0;  // from one row to the next
  IpcPlace place{};
};

class IpcMeeting {
 public:
  explicit IpcMeeting(Backend& host);

  // Returns everyone's offers, by rank, when all have come. An error names a rank that came to
  // another call.
  std::span<const IpcOffer> meet(const Call& call, const IpcOffer& own);
  // Returns when everyone has issued what he does with the offers.
  void part(const Call& call);

 private:
  enum Slot { come, gone, kNumSlots };

  int rank_;
  at::Tensor memory_;  // one offer per rank
  std::span<IpcOffer> offers_;
  std::shared_ptr<SharedCounters> counters_;
  uint64_t count_ = 0;
};

}  // namespace fullshard::comm
