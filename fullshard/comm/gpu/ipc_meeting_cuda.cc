// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "fullshard/base/error.h"
#include "fullshard/comm/gpu/ipc_meeting.h"

namespace fullshard::comm {

IpcMeeting::IpcMeeting(Backend& host)
    : rank_(host.rank()),
      memory_(
          host.allocate_common(host.size() * static_cast<int64_t>(sizeof(IpcOffer)), at::kByte)),
      offers_(static_cast<IpcOffer*>(memory_.data_ptr()), static_cast<size_t>(host.size())),
      counters_(host.make_counters(kNumSlots)) {}

std::span<const IpcOffer> IpcMeeting::meet(const Call& call, const IpcOffer& own) {
  ++count_;
  // Everyone has parted from the last call, so nobody reads the offer that this one overwrites.
  offers_[static_cast<size_t>(rank_)] = own;
  counters_->publish(come, count_);
  counters_->wait_for_all(come, count_, name_of(call.operation), call.unit);
  for (size_t rank = 0; rank < offers_.size(); ++rank) {
    const IpcOffer& offer = offers_[rank];
    check(offer.operation == own.operation && offer.bytes == own.bytes,
          "ranks disagree in group {}: rank {} came to {} of {} bytes ({}), rank {} to {} of {} "
          "bytes; all ranks must make the same calls in the same order",
          call.group, rank_, name_of(own.operation), own.bytes,
          call.unit.empty() ? "no unit" : call.unit, rank, name_of(offer.operation), offer.bytes);
  }
  return offers_;
}

void IpcMeeting::part(const Call& call) {
  counters_->publish(gone, count_);
  counters_->wait_for_all(gone, count_, name_of(call.operation), call.unit);
}

}  // namespace fullshard::comm
