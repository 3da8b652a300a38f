// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/uneven_hosts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <utility>

#include "fullshard/comm/ordered_sum.h"

namespace fullshard::comm {
namespace {

using Numels = std::vector<int64_t>;

int64_t sum_of(const Numels& numels) {
  return std::accumulate(numels.begin(), numels.end(), int64_t{0});
}

Numels in_bytes(Numels numels, int64_t element) {
  for (int64_t& numel : numels) numel *= element;
  return numels;
}

// What one call moves, and between whom.
class UnevenCall {
 public:
  UnevenCall(const UnevenLayout& layout, Backend& local, const GlooTurn& turn)
      : layout_(layout), local_(local), turn_(turn) {}

  Call local_call() const {
    Call call = turn_.call;
    call.terms = &turn_.terms;
    return call;
  }

  // Of all ranks that the lane carries on a host.
  template <class NumelOf>
  Numels numels_of_hosts(int lane, const NumelOf& numel_of) const {
    Numels numels;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      int64_t numel = 0;
      for (const int rank : layout_.carried(host, lane)) numel += numel_of(rank);
      numels.push_back(numel);
    }
    return numels;
  }

  // Gives the lane what each host's member has, side by side in the order of hosts. The first thing
  // that is sent in a call.
  at::Tensor exchange_first(const at::Tensor& own, const Numels& numels) const {
    const int64_t most = *std::max_element(numels.begin(), numels.end());
    if (!is_carried(most, own.scalar_type())) {
      turn_.meet();
      return exchange(own, numels);
    }
    const at::Tensor padded = at::zeros({most}, own.options());
    padded.narrow(0, 0, own.numel()).copy_(own);
    const at::Tensor all = from_bytes(turn_.meet(as_bytes(padded)), own.scalar_type());
    std::vector<at::Tensor> kept;
    for (size_t host = 0; host < numels.size(); ++host) {
      kept.push_back(all.narrow(0, static_cast<int64_t>(host) * most, numels[host]));
    }
    return at::cat(kept);
  }

  at::Tensor exchange(const at::Tensor& own, const Numels& numels) const {
    const auto element = static_cast<int64_t>(own.element_size());
    const at::Tensor all = at::empty({sum_of(numels)}, own.options());
    turn_.group().all_to_all(as_bytes(all), in_bytes(numels, element),
                             as_bytes(own.repeat({layout_.num_hosts()})),
                             Numels(numels.size(), own.numel() * element));
    return all;
  }

  // What the lane's rank of this host has; `own` of that rank.
  at::Tensor from_lane(int lane, const at::Tensor& own, int64_t numel, at::ScalarType dtype) const {
    if (layout_.ranks_on(layout_.own_host) == 1) return own;
    const bool is_root = layout_.own_place == lane;
    const at::Tensor all = local_.allocate(numel, dtype);
    if (is_root) all.copy_(own);
    if (numel > 0) local_.broadcast(local_call(), all, lane).wait();
    return all;
  }

  const UnevenLayout& layout() const { return layout_; }
  Backend& local() const { return local_; }
  const GlooTurn& turn() const { return turn_; }

 private:
  const UnevenLayout& layout_;
  Backend& local_;
  const GlooTurn& turn_;
};

// The hosts' own sums are made in shared memory and added host by host, by the lane that carries
// the rank whose part it is.
class UnevenReduction {
 public:
  UnevenReduction(const UnevenCall& call, const at::Tensor& rows, const ReduceOptions& options,
                  at::ScalarType output)
      : call_(call),
        layout_(call.layout()),
        options_(options),
        parts_(rows, layout_.size()),
        sums_(sum_dtype(rows.scalar_type())),
        // Old values are each rank's own: they are added at the end, to what has not been rounded.
        result_(options.accumulate ? sums_ : output),
        of_host_(at::empty({rows.numel()}, rows.options().dtype(sums_))) {
    const auto folding = options.op == ReduceOp::average ? ReduceOp::sum : options.op;
    call_.local()
        .reduce_scatter(call_.local_call(), of_host_, rows.contiguous().view({1, -1}),
                        {.op = folding, .slices = 1})
        .wait();
  }

  // This rank's slice, without its old values.
  at::Tensor slice() const {
    if (is_carried(of_host_.numel(), sums_)) return in_one_message();
    const at::Tensor own = layout_.has_lane() ? reduce_in_lane() : at::Tensor();
    return parts_.num_parts == 1 ? own_part(own) : all_parts(own);
  }

  at::ScalarType dtype() const { return result_; }

 private:
  int64_t begin_of(int rank) const {
    return parts_.slice_of(rank) * parts_.slice_numel + parts_.begin(parts_.part_of(rank));
  }
  auto numel_of() const {
    return [this](int rank) { return parts_.numel_of(rank); };
  }

  // Every lane tells everything; ranks without one hear it from the first.
  at::Tensor in_one_message() const {
    at::Tensor own;
    if (layout_.has_lane()) {
      own = add_hosts(from_bytes(call_.turn().meet(as_bytes(of_host_)), sums_));
    }
    const at::Tensor all =
        layout_.lacks_lanes() ? call_.from_lane(0, own, of_host_.numel(), result_) : own;
    return all.narrow(0, parts_.slice_of(layout_.own_rank) * parts_.slice_numel,
                      parts_.slice_numel);
  }

  // A row of sums per host.
  at::Tensor add_hosts(const at::Tensor& sums) const {
    const int64_t numel = sums.numel() / layout_.num_hosts();
    const at::Tensor result = at::empty({numel}, sums.options().dtype(result_));
    std::vector<const void*> in_order;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      in_order.push_back(static_cast<const std::byte*>(sums.const_data_ptr()) +
                         host * numel * static_cast<int64_t>(sums.element_size()));
    }
    ordered_sum(result.mutable_data_ptr(), result_, in_order, sums_, numel,
                {.op = options_.op, .divisor = layout_.size()});
    return result;
  }

  // The parts of this host's ranks that this lane carries, side by side.
  at::Tensor reduce_in_lane() const {
    std::vector<at::Tensor> sent;
    for (int host = 0; host < layout_.num_hosts(); ++host) {
      for (const int rank : layout_.carried(host, layout_.own_place)) {
        sent.push_back(of_host_.narrow(0, begin_of(rank), parts_.numel_of(rank)));
      }
    }
    const auto element = static_cast<int64_t>(of_host_.element_size());
    const Numels numels = call_.numels_of_hosts(layout_.own_place, numel_of());
    const int64_t own = numels[static_cast<size_t>(layout_.own_host)];
    const at::Tensor received = at::empty({layout_.num_hosts() * own}, of_host_.options());
    const GlooTurn& turn = call_.turn();
    turn.meet();
    turn.group().all_to_all(as_bytes(received), Numels(numels.size(), own * element),
                            as_bytes(at::cat(sent)), in_bytes(numels, element));
    return add_hosts(received);
  }

  at::Tensor own_part(const at::Tensor& of_own_lane) const {
    at::Tensor part;
    for (int lane = 0; lane < layout_.num_lanes; ++lane) {
      const Numels numels = call_.numels_of_hosts(lane, numel_of());
      const int64_t numel = numels[static_cast<size_t>(layout_.own_host)];
      const bool is_own = layout_.lane_of(layout_.own_rank) == lane;
      if (!layout_.lacks_lanes() && !is_own) continue;
      const at::Tensor all =
          layout_.lacks_lanes() ? call_.from_lane(lane, of_own_lane, numel, result_) : of_own_lane;
      if (!is_own) continue;
      int64_t at = 0;
      for (const int rank : layout_.carried(layout_.own_host, lane)) {
        if (rank == layout_.own_rank) part = all.narrow(0, at, parts_.numel_of(rank));
        at += parts_.numel_of(rank);
      }
    }
    return part;
  }

  // Parts of a slice may belong to ranks of any host and lane.
  at::Tensor all_parts(const at::Tensor& own) const {
    at::Tensor of_own_lane;
    if (layout_.has_lane()) {
      of_own_lane = call_.exchange(own, call_.numels_of_hosts(layout_.own_place, numel_of()));
    }
    const at::Tensor slice = at::empty({parts_.slice_numel}, of_host_.options().dtype(result_));
    for (int lane = 0; lane < layout_.num_lanes; ++lane) {
      const int64_t numel = sum_of(call_.numels_of_hosts(lane, numel_of()));
      const at::Tensor all = call_.from_lane(lane, of_own_lane, numel, result_);
      int64_t at = 0;
      for (int host = 0; host < layout_.num_hosts(); ++host) {
        for (const int rank : layout_.carried(host, lane)) {
          const int64_t part = parts_.numel_of(rank);
          if (parts_.slice_of(rank) == parts_.slice_of(layout_.own_rank)) {
            slice.narrow(0, parts_.begin(parts_.part_of(rank)), part)
                .copy_(all.narrow(0, at, part));
          }
          at += part;
        }
      }
    }
    return slice;
  }

  const UnevenCall& call_;
  const UnevenLayout& layout_;
  const ReduceOptions& options_;
  const ReduceParts parts_;
  const at::ScalarType sums_;
  const at::ScalarType result_;
  const at::Tensor of_host_;  // this host's sums of everything
};

class UnevenCollectives : public GlooCollectives {
 public:
  UnevenCollectives(UnevenLayout layout, std::shared_ptr<Backend> local)
      : layout_(std::move(layout)), local_(std::move(local)) {}

  void all_gather(const GlooTurn& turn, const at::Tensor& rows,
                  const at::Tensor& shard) const override {
    const UnevenCall call(layout_, *local_, turn);
    const int64_t numel = shard.numel();
    const auto numel_of = [&](int) { return numel; };
    const at::Tensor here = at::empty({layout_.ranks_on(layout_.own_host), numel}, shard.options());
    local_->all_gather(call.local_call(), here, shard).wait();
    at::Tensor own;
    if (layout_.has_lane()) {
      std::vector<at::Tensor> carried;
      for (const int rank : layout_.carried(layout_.own_host, layout_.own_place)) {
        carried.push_back(here.select(0, layout_.place_of(rank)));
      }
      own =
          call.exchange_first(at::cat(carried), call.numels_of_hosts(layout_.own_place, numel_of));
    }
    for (int lane = 0; lane < layout_.num_lanes; ++lane) {
      const at::Tensor all = call.from_lane(lane, own, sum_of(call.numels_of_hosts(lane, numel_of)),
                                            shard.scalar_type());
      int64_t at = 0;
      for (int host = 0; host < layout_.num_hosts(); ++host) {
        for (const int rank : layout_.carried(host, lane)) {
          rows.select(0, rank).copy_(all.narrow(0, at, numel));
          at += numel;
        }
      }
    }
  }

  // By way of a gather, of which each rank keeps its own: rare groups are not worth more.
  void all_to_all(const GlooTurn& turn, const at::Tensor& received,
                  const at::Tensor& sent) const override {
    const at::Tensor line = sent.contiguous().view({-1});
    const at::Tensor all = at::empty({sent.size(0), line.numel()}, sent.options());
    all_gather(turn, all, line);
    received.copy_(all.narrow(1, layout_.own_rank * sent.size(1), sent.size(1)));
  }

  void reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) const override {
    const UnevenCall call(layout_, *local_, turn);
    const UnevenReduction reduction(call, rows, options, shard.scalar_type());
    const at::Tensor slice = reduction.slice();
    const void* const row = slice.const_data_ptr();
    ordered_sum(shard.mutable_data_ptr(), shard.scalar_type(), std::span(&row, 1),
                reduction.dtype(), shard.numel(),
                {.op = ReduceOp::sum, .accumulate = options.accumulate});
  }

  // Inside the root's host, through the lane that carries the root, then inside the other hosts.
  void broadcast(const GlooTurn& turn, const at::Tensor& tensor, int root) const override {
    const UnevenCall call(layout_, *local_, turn);
    const int host = layout_.host_of(root), lane = layout_.lane_of(root);
    const bool is_at_root = layout_.own_host == host;
    if (is_at_root) {
      local_->broadcast(call.local_call(), tensor, layout_.place_of(root)).wait();
    }
    if (layout_.own_place == lane) {
      const bool is_small = is_carried(tensor.numel(), tensor.scalar_type());
      const at::Tensor all = turn.meet(is_small ? as_bytes(tensor) : at::Tensor());
      if (!is_small) {
        turn.group().broadcast(as_bytes(tensor), host);
      } else if (!is_at_root) {
        tensor.copy_(from_bytes(all.select(0, host), tensor.scalar_type()));
      }
    }
    if (!is_at_root) local_->broadcast(call.local_call(), tensor, lane).wait();
  }

  // Who passes knows that its host has come, and of every other host one that knows the same; a
  // rank without a lane is told.
  void barrier(const GlooTurn& turn) const override {
    const UnevenCall call(layout_, *local_, turn);
    local_->barrier(call.local_call());
    if (layout_.has_lane()) turn.meet();
    if (layout_.lacks_lanes()) local_->barrier(call.local_call());
  }

 private:
  const UnevenLayout layout_;
  const std::shared_ptr<Backend> local_;
};

}  // namespace

UnevenLayout::UnevenLayout(const std::vector<int>& hosts, int rank)
    : order(hosts),
      num_lanes(*std::min_element(order.rows_per_host.begin(), order.rows_per_host.end())),
      own_rank(rank) {
  int first = 0;
  for (const int ranks : order.rows_per_host) {
    first_places.push_back(first);
    first += ranks;
  }
  own_host = host_of(rank);
  own_place = place_of(rank);
}

int UnevenLayout::rank_at(int host, int place) const {
  return order.ranks[static_cast<size_t>(first_places[static_cast<size_t>(host)] + place)];
}

int UnevenLayout::host_of(int rank) const {
  const auto after =
      std::upper_bound(first_places.begin(), first_places.end(), order.place_of(rank));
  return static_cast<int>(after - first_places.begin()) - 1;
}

int UnevenLayout::place_of(int rank) const {
  return order.place_of(rank) - first_places[static_cast<size_t>(host_of(rank))];
}

std::vector<int> UnevenLayout::carried(int host, int lane) const {
  std::vector<int> ranks;
  for (int place = lane; place < ranks_on(host); place += num_lanes) {
    ranks.push_back(rank_at(host, place));
  }
  return ranks;
}

std::shared_ptr<const GlooCollectives> make_uneven_collectives(UnevenLayout layout,
                                                               std::shared_ptr<Backend> local) {
  return std::make_shared<UnevenCollectives>(std::move(layout), std::move(local));
}

}  // namespace fullshard::comm
