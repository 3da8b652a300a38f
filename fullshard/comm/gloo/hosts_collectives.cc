// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/hosts_collectives.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "fullshard/base/bytes.h"
#include "fullshard/comm/gloo/hosts_reduce.h"

namespace fullshard::comm {
namespace {

// Rows of so few bytes go through the host's memory in one call and are sorted afterwards; larger
// ones in a call for each host, straight to where they belong.
constexpr int64_t kSortedBytes = 64 * kKiB;

class HostsCollectives : public GlooCollectives {
 public:
  HostsCollectives(HostsLayout layout, std::shared_ptr<Backend> local)
      : layout_(std::move(layout)), local_(std::move(local)) {}

  void all_gather(const GlooTurn& turn, const at::Tensor& rows,
                  const at::Tensor& shard) const override {
    const at::Tensor lane = gather_lane(turn, shard);
    if (lane.nbytes() <= kSortedBytes) return gather_and_sort(turn, rows, lane);
    const int num_places = layout_.ranks_per_host();
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      const int first = layout_.order.rank_at(host, 0);
      const bool are_neighbours =
          layout_.order.rank_at(host, num_places - 1) == first + num_places - 1;
      const at::Tensor of_host = are_neighbours
                                     ? rows.narrow(0, first, num_places)
                                     : at::empty({num_places, rows.size(1)}, rows.options());
      local_->all_gather(link(turn).local_call(), of_host, lane.select(0, host)).wait();
      for (int place = 0; place < num_places && !are_neighbours; ++place) {
        rows.select(0, layout_.order.rank_at(host, place)).copy_(of_host.select(0, place));
      }
    }
  }

  void reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) const override {
    hosts_reduce_scatter(link(turn), shard, rows, options);
  }

  // Inside the host each rank takes what goes to its place on any host; its lane carries that on.
  void all_to_all(const GlooTurn& turn, const at::Tensor& received,
                  const at::Tensor& sent) const override {
    const int64_t hosts = layout_.num_hosts(), places = layout_.ranks_per_host();
    const int64_t numel = sent.size(1);
    const at::Tensor by_place =
        local_->allocate(sent.numel(), sent.scalar_type()).view({places, hosts, numel});
    for (int rank = 0; rank < layout_.size(); ++rank) {
      by_place[layout_.place_of(rank)][layout_.host_of(rank)].copy_(sent.select(0, rank));
    }
    const at::Tensor to_own_place = at::empty({places, hosts * numel}, sent.options());
    local_->all_to_all(link(turn).local_call(), to_own_place, by_place.view({places, -1})).wait();
    turn.meet();
    const at::Tensor by_host = to_own_place.view({places, hosts, numel}).transpose(0, 1);
    const at::Tensor of_lane = at::empty({hosts, places * numel}, sent.options());
    exchange_rows(turn, of_lane, by_host.contiguous().view({hosts, -1}));
    const at::Tensor found = of_lane.view({hosts, places, numel});
    for (int rank = 0; rank < layout_.size(); ++rank) {
      received.select(0, rank).copy_(found[layout_.host_of(rank)][layout_.place_of(rank)]);
    }
  }

  // Through the root's lane, then inside each host.
  void broadcast(const GlooTurn& turn, const at::Tensor& tensor, int root) const override {
    const int place = layout_.place_of(root), host = layout_.host_of(root);
    if (layout_.own_place == place) {
      const bool is_small = is_carried(tensor.numel(), tensor.scalar_type());
      const at::Tensor all = turn.meet(is_small ? as_bytes(tensor) : at::Tensor());
      if (!is_small) {
        turn.group().broadcast(as_bytes(tensor), host);
      } else if (layout_.own_rank != root) {
        tensor.copy_(from_bytes(all.select(0, host), tensor.scalar_type()));
      }
    }
    local_->broadcast(link(turn).local_call(), tensor, place).wait();
  }

  // Who passes knows that its host has come, and of every other host one that knows the same.
  void barrier(const GlooTurn& turn) const override {
    local_->barrier(link(turn).local_call());
    turn.meet();
  }

 private:
  HostsLink link(const GlooTurn& turn) const { return {layout_, *local_, turn}; }

  // The shards of this lane, a row per host, in memory that this host shares.
  at::Tensor gather_lane(const GlooTurn& turn, const at::Tensor& shard) const {
    const at::Tensor lane =
        local_->allocate(layout_.num_hosts() * shard.numel(), shard.scalar_type());
    if (is_carried(shard.numel(), shard.scalar_type())) {
      lane.copy_(from_bytes(turn.meet(as_bytes(shard)), shard.scalar_type()));
    } else {
      turn.meet();
      turn.group().all_gather(as_bytes(lane), as_bytes(shard));
    }
    return lane.view({layout_.num_hosts(), shard.numel()});
  }

  void gather_and_sort(const GlooTurn& turn, const at::Tensor& rows, const at::Tensor& lane) const {
    const at::Tensor all = at::empty({layout_.ranks_per_host(), lane.numel()}, rows.options());
    local_->all_gather(link(turn).local_call(), all, lane.view({-1})).wait();
    for (int rank = 0; rank < layout_.size(); ++rank) {
      rows.select(0, rank).copy_(
          all.select(0, layout_.place_of(rank))
              .narrow(0, layout_.host_of(rank) * rows.size(1), rows.size(1)));
    }
  }

  const HostsLayout layout_;
  const std::shared_ptr<Backend> local_;
};

}  // namespace

HostsLayout::HostsLayout(const std::vector<int>& hosts, int rank)
    : order(hosts), own_rank(rank), own_host(host_of(rank)), own_place(place_of(rank)) {}

std::shared_ptr<const GlooCollectives> make_hosts_collectives(HostsLayout layout,
                                                              std::shared_ptr<Backend> local) {
  return std::make_shared<HostsCollectives>(std::move(layout), std::move(local));
}

}  // namespace fullshard::comm
