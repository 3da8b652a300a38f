// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/shm/shm_backend.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/shm/shm_collectives.h"
#include "fullshard/comm/shm/shm_counters.h"
#include "fullshard/comm/shm/shm_link_peers.h"

namespace fullshard::comm {
namespace {

class ShmPending final : public Work::Pending {
 public:
  ShmPending(std::shared_ptr<ShmRank> rank, std::shared_ptr<ShmCall> call)
      : rank_(std::move(rank)), call_(std::move(call)) {}
  void wait() override { rank_->wait(*call_, ShmCall::Stage::complete); }
  void wait_for_result() override { rank_->wait(*call_, ShmCall::Stage::result); }
  void advance() override { rank_->progress().advance(*call_, ShmCall::Stage::result); }

 private:
  std::shared_ptr<ShmRank> rank_;
  std::shared_ptr<ShmCall> call_;
};

}  // namespace

ShmBackend::ShmBackend(std::shared_ptr<ShmRank> rank, std::shared_ptr<const ShmGroup> group)
    : rank_(std::move(rank)), group_(std::move(group)) {}

template <class Collective, class... Buffers>
Work ShmBackend::issue(const Call& call, Buffers&&... buffers) {
  const uint64_t ticket = next_ticket_++;
  std::shared_ptr<ShmCall>& held = calls_[ticket % kNumTickets];
  if (held) rank_->wait(*held, ShmCall::Stage::retired);
  auto issued = std::make_shared<Collective>(std::forward<Buffers>(buffers)..., group_,
                                             rank_->arena(), rank_->watch(), call);
  issued->issue(ticket);
  held = issued;
  rank_->progress().add(issued);
  return Work(std::make_unique<ShmPending>(rank_, std::move(issued)));
}

Work ShmBackend::all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) {
  return issue<ShmGather>(call, rows, shard);
}

Work ShmBackend::reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                                const ReduceOptions& options) {
  return issue<ShmReduce>(call, shard, rows, options);
}

Work ShmBackend::all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) {
  return issue<ShmExchangeRows>(call, received, sent);
}

Work ShmBackend::broadcast(const Call& call, const at::Tensor& tensor, int root) {
  return issue<ShmBroadcast>(call, tensor, root);
}

void ShmBackend::barrier(const Call& call) { issue<ShmBarrier>(call).wait(); }

at::Tensor ShmBackend::allocate(int64_t numel, at::ScalarType dtype) {
  const auto bytes = numel * static_cast<int64_t>(c10::elementSize(dtype));
  auto block = ShmArena::allocate(rank_->arena(), bytes);
  void* begin = block.get();
  return at::from_blob(
      begin, {numel}, [block](void*) {}, at::TensorOptions().dtype(dtype));
}

at::Tensor ShmBackend::allocate_common(int64_t numel, at::ScalarType dtype) {
  const auto bytes = std::max<int64_t>(1, numel * static_cast<int64_t>(c10::elementSize(dtype)));
  Claim& claim = group_->claim(next_claim_++);
  const auto& memory = rank_->memory();
  const int64_t offset = memory->take(claim, bytes, group_->name().c_str());
  // One rank is enough: the pages are the same for all.
  if (rank_->rank() == 0) memory->common().use_huge_pages(offset, bytes);
  std::byte* begin = memory->common().base() + offset;
  const auto release = [memory, &claim, ranks = size()](void*) { memory->release(claim, ranks); };
  return at::from_blob(begin, {numel}, release, at::TensorOptions().dtype(dtype));
}

std::shared_ptr<SharedCounters> ShmBackend::make_counters(int slots) {
  Claim& claim = group_->claim(next_claim_++);
  return std::make_shared<ShmCounters>(rank_, group_, claim, slots);
}

std::shared_ptr<LinkPeers> ShmBackend::make_link_peers() {
  return std::make_shared<ShmLinkPeers>(rank_, group_, make_counters(1));
}

}  // namespace fullshard::comm
