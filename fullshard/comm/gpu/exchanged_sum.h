// SPDX-License-Identifier: Apache-2.0
// The ordered sum (ordered_sum.h) between ranks that see none of each other's memory, with its
// bits: rows are exchanged as they are, so 16-bit gradients travel as 16 bits, and added in order
// by the rank that keeps the result. Where several hosts hold several ranks each, first the ranks
// of a host exchange and add, then the ranks of equal place on their hosts exchange those sums:
//
//   2 hosts × 2 ranks, what rank 0 keeps:
//     in the host    rank 0 has   r0 + r1          rank 2 has   r2 + r3        fp32
//     between hosts  rank 0 has  (r0 + r1) + (r2 + r3), times float(1 / 4)
//
// Between hosts a ring's volume in fp32, divided by the ranks of a host. What carries it is given.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "fullshard/comm/communicator.h"

namespace fullshard::comm {

// One pass over rows that lie anywhere: start, if any, then the rows in order; then a
// multiplication by 1 / divisor in the dtype of the sums; then the addend.
struct RowSum {
  void* output = nullptr;
  at::ScalarType output_dtype = at::kFloat;
  std::span<const void* const> rows;
  at::ScalarType rows_dtype = at::kFloat;
  int64_t numel = 0;
  ReduceOp op = ReduceOp::sum;  // average adds as sum does
  int64_t divisor = 1;
  const void* start = nullptr;   // of the sums' dtype; folded before the first row
  const void* addend = nullptr;  // of the output's dtype; may be the output
};

// Moves and adds where the memory is. Calls take effect in the order in which they are made.
class SumCarrier {
 public:
  struct Message {
    void* begin;
    int64_t bytes;
    int peer;  // in the group
  };

  virtual ~SumCarrier() = default;
  // All at once. Messages between two ranks are met in the order in which they are given.
  virtual void exchange(std::span<const Message> sent, std::span<const Message> received) = 0;
  virtual void add(const RowSum& sum) = 0;
  virtual at::Tensor scratch(int64_t numel, at::ScalarType dtype) = 0;
  virtual int max_rows() const = 0;  // of one add()
};

struct ExchangedSum {
  int rank = 0;                     // in the group
  std::vector<int> hosts;           // of each rank of the group
  ReduceOptions options;            // with slices
  int64_t window_bytes = 64 << 20;  // of received rows; more are received in several turns
};

// As Backend::reduce_scatter. Collective.
void exchanged_sum(SumCarrier& carrier, const at::Tensor& shard, const at::Tensor& rows,
                   const ExchangedSum& job);

}  // namespace fullshard::comm
