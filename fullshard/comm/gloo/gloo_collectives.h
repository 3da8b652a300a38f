// SPDX-License-Identifier: Apache-2.0
// What a call does over gloo when its turn has come, on the worker's thread. Shared with it: a
// worker may outlive its backend.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "fullshard/comm/gloo/gloo_worker.h"

namespace fullshard::comm {

class GlooCollectives {
 public:
  virtual ~GlooCollectives() = default;
  // As those of Backend; tensors are never empty.
  virtual void all_gather(const GlooTurn& turn, const at::Tensor& rows,
                          const at::Tensor& shard) const = 0;
  virtual void reduce_scatter(const GlooTurn& turn, const at::Tensor& shard, const at::Tensor& rows,
                              const ReduceOptions& options) const = 0;
  virtual void all_to_all(const GlooTurn& turn, const at::Tensor& received,
                          const at::Tensor& sent) const = 0;
  virtual void broadcast(const GlooTurn& turn, const at::Tensor& tensor, int root) const = 0;
  // Returns when every rank has come.
  virtual void barrier(const GlooTurn& turn) const = 0;
};

// Every rank with every other.
std::shared_ptr<const GlooCollectives> make_direct_collectives(int rank, std::vector<int> hosts);

// Row r of `sent`, contiguous, goes to rank r of the group, which leaves it in the row of the
// sender; the ranks have met.
void exchange_rows(const GlooTurn& turn, const at::Tensor& received, const at::Tensor& sent);

// A 1-D contiguous tensor as bytes, and the other way round.
at::Tensor as_bytes(const at::Tensor& line);
at::Tensor from_bytes(const at::Tensor& bytes, at::ScalarType dtype);
// Whether it fits a call's first message.
bool is_carried(int64_t numel, at::ScalarType dtype);

}  // namespace fullshard::comm
