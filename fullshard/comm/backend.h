// SPDX-License-Identifier: Apache-2.0
// What a transport implements. Buffers arrive checked and normalised by Communicator: tensors are
// CPU (or the backend's device), `rows` is 2-D with contiguous rows.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "fullshard/comm/communicator.h"

namespace fullshard::comm {

struct CallTerms;

// Names one call to the peers: they compare it at equal sequence numbers, and blame with it.
struct Call {
  uint64_t sequence = 0;
  Operation operation = Operation::barrier;
  std::string_view group;
  std::string_view unit;
  int64_t bytes = 0;
  TimeLimit limit = TimeLimit::step;
  // Of a larger call that this one is a part of: the ranks agree on that instead.
  const CallTerms* terms = nullptr;
};

class LinkPeers;

class Backend {
 public:
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  virtual Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) = 0;
  virtual Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                              const ReduceOptions& options) = 0;
  // Of rows both.
  virtual Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) = 0;
  virtual Work broadcast(const Call& call, const at::Tensor& tensor, int root) = 0;
  virtual void barrier(const Call& call) = 0;

  virtual at::Tensor allocate(int64_t numel, at::ScalarType dtype) = 0;
  virtual bool shares_memory() const { return false; }
  virtual at::Tensor allocate_common(int64_t numel, at::ScalarType dtype);
  virtual std::shared_ptr<SharedCounters> make_counters(int slots);

  // What this host's backend knows of the group's ranks, for a link that carries calls beside it.
  // Collective in order, but nobody waits. Null where no rank can go missing.
  virtual std::shared_ptr<LinkPeers> make_link_peers() { return nullptr; }
  // Makes now, for messages of `bytes`, what a backend otherwise makes at the first of them.
  // Collective.
  virtual void warm_up(const Call&, int64_t /*bytes*/) {}
};

}  // namespace fullshard::comm
