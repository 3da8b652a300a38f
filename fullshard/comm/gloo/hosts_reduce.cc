// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/hosts_reduce.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "fullshard/comm/ordered_sum.h"

namespace fullshard::comm {
namespace {

class HostsReduction {
 public:
  HostsReduction(const HostsLink& link, const at::Tensor& rows, const ReduceOptions& options)
      : link_(link),
        layout_(link.layout),
        rows_(rows),
        options_(options),
        parts_(rows, link.layout.size()),
        sums_(sum_dtype(rows.scalar_type())),
        sum_bytes_(static_cast<int64_t>(c10::elementSize(sums_))) {}

  void run(const at::Tensor& shard) {
    if (is_carried(rows_.numel(), sums_)) return in_one_message(shard);
    if (parts_.num_parts == 1) return reduce_part(shard, options_.accumulate);
    // Old values are each rank's own: they are added after the exchange, to a result that has not
    // been rounded.
    const auto dtype = options_.accumulate ? sums_ : shard.scalar_type();
    const at::Tensor part =
        at::empty({parts_.numel_of(layout_.own_rank)}, rows_.options().dtype(dtype));
    reduce_part(part, false);
    const at::Tensor slice = lanes_hold_slices() ? spread_in_lane(part) : spread_to_all(part);
    const void* const row = slice.const_data_ptr();
    ordered_sum(shard.mutable_data_ptr(), shard.scalar_type(), std::span(&row, 1), dtype,
                shard.numel(), {.op = ReduceOp::sum, .accumulate = options_.accumulate});
  }

 private:
  using Counts = std::vector<int64_t>;

  ReduceOp folding() const {
    return options_.op == ReduceOp::average ? ReduceOp::sum : options_.op;
  }

  // Everyone gets the host's sums of everything, and those of the other hosts.
  void in_one_message(const at::Tensor& shard) {
    const at::Tensor own = at::empty({rows_.numel()}, rows_.options().dtype(sums_));
    link_.local
        .reduce_scatter(link_.local_call(), own, rows_.contiguous().view({1, -1}),
                        {.op = folding(), .slices = 1})
        .wait();
    const at::Tensor all = from_bytes(link_.turn.meet(as_bytes(own)), sums_);
    add_hosts(shard, all.view({layout_.num_hosts(), -1}),
              parts_.slice_of(layout_.own_rank) * parts_.slice_numel, options_.accumulate);
  }

  // What this rank reduces, into `output`.
  void reduce_part(const at::Tensor& output, bool accumulate) {
    const at::Tensor packed = pack();
    const at::Tensor own = at::empty({packed.size(1)}, rows_.options().dtype(sums_));
    link_.local
        .reduce_scatter(link_.local_call(), own, packed,
                        {.op = folding(), .slices = layout_.ranks_per_host()})
        .wait();
    link_.turn.meet();
    Counts sent, received;
    int64_t sent_numel = 0;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      sent.push_back(parts_.numel_of(layout_.lane_rank(host)) * sum_bytes_);
      received.push_back(output.numel() * sum_bytes_);
      sent_numel += parts_.numel_of(layout_.lane_rank(host));
    }
    const at::Tensor all = at::empty({layout_.num_hosts(), output.numel()}, own.options());
    link_.turn.group().all_to_all(as_bytes(all.view({-1})), received,
                                  as_bytes(own.narrow(0, 0, sent_numel)), sent);
    add_hosts(output, all, 0, accumulate);
  }

  // A row per place of this host: what the lane of that place reduces, host by host.
  at::Tensor pack() {
    const int num_places = layout_.ranks_per_host();
    int64_t longest = 0;
    for (int place = 0; place < num_places; ++place) {
      int64_t numel = 0;
      for (int host = 0; host < layout_.num_hosts(); ++host) {
        numel += parts_.numel_of(layout_.order.rank_at(host, place));
      }
      longest = std::max(longest, numel);
    }
    const at::Tensor packed =
        link_.local.allocate(num_places * longest, rows_.scalar_type()).view({num_places, longest});
    for (int place = 0; place < num_places; ++place) {
      int64_t at = 0;
      for (int host = 0; host < layout_.num_hosts(); ++host) {
        const int owner = layout_.order.rank_at(host, place);
        const int64_t numel = parts_.numel_of(owner);
        packed.select(0, place)
            .narrow(0, at, numel)
            .copy_(rows_.select(0, parts_.slice_of(owner))
                       .narrow(0, parts_.begin(parts_.part_of(owner)), numel));
        at += numel;
      }
      packed.select(0, place).narrow(0, at, longest - at).zero_();
    }
    return packed;
  }

  // The sums of the hosts, a row each from `place` on, in their order.
  void add_hosts(const at::Tensor& output, const at::Tensor& sums, int64_t place, bool accumulate) {
    std::vector<const void*> in_order;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      in_order.push_back(static_cast<const std::byte*>(sums.const_data_ptr()) +
                         (host * sums.size(1) + place) * sum_bytes_);
    }
    ordered_sum(output.mutable_data_ptr(), output.scalar_type(), in_order, sums_, output.numel(),
                {.op = options_.op, .accumulate = accumulate, .divisor = layout_.size()});
  }

  int replica(int part) const {
    return part * parts_.num_slices + parts_.slice_of(layout_.own_rank);
  }

  // Whether the replicas of each slice form a lane, in its order, as where each host holds every
  // slice once. The same on all ranks.
  bool lanes_hold_slices() const {
    for (int rank = parts_.num_slices; rank < layout_.size(); ++rank) {
      const int before = rank - parts_.num_slices;
      if (layout_.place_of(rank) != layout_.place_of(before)) return false;
      if (layout_.host_of(rank) <= layout_.host_of(before)) return false;
    }
    return true;
  }

  at::Tensor spread_in_lane(const at::Tensor& part) {
    const auto element = static_cast<int64_t>(part.element_size());
    Counts sent(static_cast<size_t>(layout_.num_hosts()), 0), received = sent;
    for (int index = 0; index < parts_.num_parts; ++index) {
      const auto host = static_cast<size_t>(layout_.host_of(replica(index)));
      sent[host] = part.numel() * element;
      received[host] = parts_.numel(index) * element;
    }
    const at::Tensor slice = at::empty({parts_.slice_numel}, part.options());
    link_.turn.group().all_to_all(as_bytes(slice), received,
                                  as_bytes(part.repeat({parts_.num_parts})), sent);
    return slice;
  }

  // Through the lanes, then inside the host; of what arrives this rank takes the parts of its
  // slice.
  at::Tensor spread_to_all(const at::Tensor& part) {
    int64_t longest = 0;
    for (int index = 0; index < parts_.num_parts; ++index) {
      longest = std::max(longest, parts_.numel(index));
    }
    const int num_hosts = layout_.num_hosts();
    const at::Tensor own = at::empty({longest}, part.options());
    own.narrow(0, 0, part.numel()).copy_(part);
    own.narrow(0, part.numel(), longest - part.numel()).zero_();
    const at::Tensor lane = link_.local.allocate(num_hosts * longest, part.scalar_type());
    link_.turn.group().all_gather(as_bytes(lane), as_bytes(own));
    const at::Tensor all = at::empty({layout_.ranks_per_host(), lane.numel()}, part.options());
    link_.local.all_gather(link_.local_call(), all, lane).wait();
    const at::Tensor slice = at::empty({parts_.slice_numel}, part.options());
    for (int index = 0; index < parts_.num_parts; ++index) {
      const int rank = replica(index);
      slice.narrow(0, parts_.begin(index), parts_.numel(index))
          .copy_(all.select(0, layout_.place_of(rank))
                     .narrow(0, layout_.host_of(rank) * longest, parts_.numel(index)));
    }
    return slice;
  }

  const HostsLink& link_;
  const HostsLayout& layout_;
  const at::Tensor& rows_;
  const ReduceOptions& options_;
  const ReduceParts parts_;
  const at::ScalarType sums_;
  const int64_t sum_bytes_;
};

}  // namespace

void hosts_reduce_scatter(const HostsLink& link, const at::Tensor& shard, const at::Tensor& rows,
                          const ReduceOptions& options) {
  HostsReduction(link, rows, options).run(shard);
}

}  // namespace fullshard::comm
