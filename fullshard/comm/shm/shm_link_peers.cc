// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_link_peers.h"

#include <utility>
#include <vector>

namespace fullshard::comm {
namespace {

Act act_of(const LinkCall& call) {
  return {name_of(call.operation), call.unit, call.group, call.sequence, call.limit};
}

}  // namespace

ShmLinkPeers::ShmLinkPeers(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group,
                           std::shared_ptr<SharedCounters> issued)
    : rank_(std::move(rank)), group_(std::move(group)), issued_(std::move(issued)) {}

void ShmLinkPeers::note(const LinkCall& call) {
  rank_->watch().note(act_of(call), CallProgress::issued);
  issued_->publish(0, call.number);
}

void ShmLinkPeers::look(const LinkCall& call, std::chrono::milliseconds waited) {
  std::vector<int> missing;
  for (int rank = 0; rank < group_->size(); ++rank) {
    if (issued_->value(0, rank) < call.number) missing.push_back(group_->domain_rank(rank));
  }
  rank_->watch().look_beside(missing, act_of(call), waited);
}

void ShmLinkPeers::look_for_gone(const LinkCall& call) {
  look(call, std::chrono::milliseconds::zero());
}

}  // namespace fullshard::comm
