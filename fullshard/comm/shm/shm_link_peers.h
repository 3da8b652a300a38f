// SPDX-License-Identifier: Apache-2.0
// The ranks behind a link, known through the memory that the host's ranks share: each counts the
// calls that it has issued, and a process that ends closes its lifeline.
#pragma once

#include <memory>

#include "fullshard/comm/link_peers.h"
#include "fullshard/comm/shm/shm_group.h"
#include "fullshard/comm/shm/shm_rank.h"

namespace fullshard::comm {

class ShmLinkPeers final : public LinkPeers {
 public:
  ShmLinkPeers(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group,
               std::shared_ptr<SharedCounters> issued);

  void note(const LinkCall& call) override;
  void look(const LinkCall& call, std::chrono::milliseconds waited) override;
  void look_for_gone(const LinkCall& call) override;

 private:
  std::shared_ptr<ShmRank> rank_;
  std::shared_ptr<const ShmGroup> group_;
  std::shared_ptr<SharedCounters> issued_;
};

}  // namespace fullshard::comm
