// SPDX-License-Identifier: Apache-2.0
// The transport of ranks that share memory. Issuing a collective publishes where this rank's buffer
// is; wait() makes the pass over the peers' memory on the caller's thread.
#pragma once

#include <array>
#include <memory>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/shm/shm_group.h"
#include "fullshard/comm/shm/shm_rank.h"

namespace fullshard::comm {

class ShmBackend final : public Backend {
 public:
  ShmBackend(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group);

  std::string_view name() const override { return "shm"; }
  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  bool shares_memory() const override { return true; }
  at::Tensor allocate_common(int64_t numel, at::ScalarType dtype) override;
  std::shared_ptr<SharedCounters> make_counters(int slots) override;
  std::shared_ptr<LinkPeers> make_link_peers() override;

 private:
  template <class Collective, class... Buffers>
  Work issue(const Call& call, Buffers&&... buffers);

  std::shared_ptr<ShmRank> rank_;
  std::shared_ptr<const ShmGroup> group_;
  uint64_t next_ticket_ = 1;
  int next_claim_ = 0;
  std::array<std::shared_ptr<ShmCall>, kNumTickets> calls_;  // by ticket, the newest of each slot
};

}  // namespace fullshard::comm
