// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_reduce.h"

#include <ATen/ops/empty.h>

#include <cstddef>
#include <span>

#include "fullshard/comm/gloo/gloo_collectives.h"
#include "fullshard/comm/ordered_sum.h"
#include "fullshard/comm/reduce_parts.h"

namespace fullshard::comm {
namespace {

// What each rank reduces, side by side in the order of ranks.
at::Tensor packed(const at::Tensor& rows, const ReduceParts& parts) {
  if (parts.num_parts == 1) return rows.contiguous().view({rows.numel()});
  const at::Tensor line = at::empty({rows.numel()}, rows.options());
  int64_t at = 0;
  for (int part = 0; part < parts.num_parts; ++part) {
    for (int slice = 0; slice < parts.num_slices; ++slice) {
      const int64_t numel = parts.numel(part);
      line.narrow(0, at, numel).copy_(rows.select(0, slice).narrow(0, parts.begin(part), numel));
      at += numel;
    }
  }
  return line;
}

// Sums what the ranks sent, a row each, into `output`; it begins at `place` of each row.
void sum_received(const at::Tensor& output, const at::Tensor& received, int64_t place,
                  const GlooReduction& reduction, bool accumulate) {
  const HostOrder order(reduction.hosts);
  std::vector<const void*> rows;
  for (const int rank : order.ranks) {
    rows.push_back(static_cast<const std::byte*>(received.const_data_ptr()) +
                   (rank * received.size(1) + place) *
                       static_cast<int64_t>(received.element_size()));
  }
  ordered_sum(
      output.mutable_data_ptr(), output.scalar_type(), rows, received.scalar_type(), output.numel(),
      {.op = reduction.options.op, .accumulate = accumulate, .rows_per_host = order.rows_per_host});
}

// Every replica of the slice gets all its parts, in order.
at::Tensor exchange_parts(const GlooTurn& turn, const at::Tensor& part, const ReduceParts& parts,
                          int own_slice) {
  const auto element = static_cast<int64_t>(part.element_size());
  const auto num_ranks = static_cast<size_t>(parts.num_parts * parts.num_slices);
  std::vector<int64_t> sent(num_ranks, 0), received(num_ranks, 0);
  for (int replica = 0; replica < parts.num_parts; ++replica) {
    const auto rank = static_cast<size_t>(replica * parts.num_slices + own_slice);
    sent[rank] = part.numel() * element;
    received[rank] = parts.numel(replica) * element;
  }
  const at::Tensor slice = at::empty({parts.slice_numel}, part.options());
  turn.group().all_to_all(as_bytes(slice), received, as_bytes(part.repeat({parts.num_parts})),
                          sent);
  return slice;
}

}  // namespace

void gloo_reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                         const GlooReduction& reduction) {
  const auto num_ranks = static_cast<int>(reduction.hosts.size());
  const bool accumulate = reduction.options.accumulate;
  const ReduceParts parts(rows, num_ranks);
  if (is_carried(rows.numel(), rows.scalar_type())) {
    const at::Tensor all = turn.meet(as_bytes(rows.contiguous().view({rows.numel()})));
    const int64_t place = parts.slice_of(reduction.rank) * parts.slice_numel;
    return sum_received(shard, from_bytes(all, rows.scalar_type()).view({num_ranks, -1}), place,
                        reduction, accumulate);
  }
  turn.meet();
  const int own_part = parts.part_of(reduction.rank);
  const auto element = static_cast<int64_t>(rows.element_size());
  const int64_t numel = parts.numel(own_part);

  std::vector<int64_t> sent;
  for (int rank = 0; rank < num_ranks; ++rank) {
    sent.push_back(parts.numel(parts.part_of(rank)) * element);
  }
  const at::Tensor received = at::empty({num_ranks, numel}, rows.options());
  turn.group().all_to_all(as_bytes(received.view({-1})),
                          std::vector<int64_t>(static_cast<size_t>(num_ranks), numel * element),
                          as_bytes(packed(rows, parts)), sent);
  if (parts.num_parts == 1) return sum_received(shard, received, 0, reduction, accumulate);

  // Old values are each rank's own: they are added after the exchange, to a result that has not
  // been rounded.
  const auto dtype = accumulate ? sum_dtype(rows.scalar_type()) : shard.scalar_type();
  const at::Tensor part = at::empty({numel}, rows.options().dtype(dtype));
  sum_received(part, received, 0, reduction, false);
  const at::Tensor slice = exchange_parts(turn, part, parts, parts.slice_of(reduction.rank));
  const void* const row = slice.const_data_ptr();
  ordered_sum(shard.mutable_data_ptr(), shard.scalar_type(), std::span(&row, 1), dtype,
              shard.numel(), {.op = ReduceOp::sum, .accumulate = accumulate});
}

}  // namespace fullshard::comm
