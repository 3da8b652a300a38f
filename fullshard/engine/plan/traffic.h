// SPDX-License-Identifier: Apache-2.0
// How the bytes of one group travel: the collectives and message sizes that the options ask for.
// Knows nothing of units, phases or memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "fullshard/comm/world/mesh.h"

namespace fullshard::engine {

// DeepSpeed's switches for collectives, with DeepSpeed's meaning.
struct TrafficOptions {
  bool reduce_scatter = true;         // else all-reduce, and keep the own slice
  bool allgather_partitions = true;   // else one broadcast per owner
  int64_t allgather_bucket_size = 0;  // most elements in one message; 0: no limit
  int64_t reduce_bucket_size = 0;
};

// Several collectives waited for together.
class Works {
 public:
  void add(Work work) { works_.push_back(std::move(work)); }
  void wait();
  void wait_for_results();  // peers may still read what was sent
  void advance();           // without waiting
  bool is_pending() const { return !works_.empty(); }

 private:
  std::vector<Work> works_;
};

// True where the shards of each replica are exactly the ranks of one host: adding over the shards,
// then over the replicas, is then the one order in which gradients are added (docs/architecture.md,
// "Bits"). Elsewhere the two axes would add in another order.
bool shards_are_hosts(const Mesh& mesh);

class Traffic {
 public:
  Traffic(const Mesh& mesh, const TrafficOptions& options);

  // Fills `full` from every rank's `shard` along the shards axis.
  Works gather(const at::Tensor& full, const at::Tensor& shard, std::string_view label) const;

  // The mean of `full` over all ranks of the mesh; this rank's slice of it goes into `shard`, added
  // to what is there when `accumulate`. The slice may be part of `full` itself. `on_result` may be
  // shown the slice range by range, as ReduceOptions says.
  Works reduce(const at::Tensor& shard, const at::Tensor& full, bool accumulate,
               std::string_view label, std::function<void(int64_t, int64_t)> on_result = {}) const;

  // The same in two stages, inside hosts first: the unit moves inside hosts only, and one shard of
  // it between them. Both stages leave plain sums; gradient_factor makes the mean of
  // them.
  bool reduces_in_stages() const { return reduces_in_stages_; }
  Works sum_over_shards(const at::Tensor& sums, const at::Tensor& full,
                        std::string_view label) const;
  Works sum_over_replicas(const at::Tensor& sums, std::string_view label) const;

 private:
  Works gather_by_broadcast(const at::Tensor& full, const at::Tensor& shard,
                            std::string_view label) const;
  Works reduce_by_all_reduce(const at::Tensor& shard, const at::Tensor& full, bool accumulate,
                             std::string_view label) const;

  const Mesh& mesh_;
  TrafficOptions options_;
  bool reduces_in_stages_;
};

}  // namespace fullshard::engine
