// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/link_warm_up.h"

#include <c10/core/ScalarType.h>

#include <algorithm>

#include "fullshard/comm/ordered_sum.h"

namespace fullshard::engine {
namespace {

int64_t limited(int64_t numel, int64_t bucket, at::ScalarType dtype) {
  const int64_t sent = bucket > 0 ? std::min(numel, bucket) : numel;
  return sent * static_cast<int64_t>(c10::elementSize(dtype));
}

}  // namespace

LargestMessages largest_messages(const Engine& engine) {
  const auto& traffic = engine.options().traffic;
  LargestMessages largest;
  for (const auto& unit : engine.units()) {
    for (const auto& group : unit->groups()) {
      const auto& spec = group->spec();
      const int64_t numel = group->layout().numel();
      const int64_t gathered = limited(numel, traffic.allgather_bucket_size, spec.compute_dtype);
      largest.gathered = std::max(largest.gathered, gathered);
      if (!spec.trainable) continue;
      const int64_t reduced = limited(numel, traffic.reduce_bucket_size, spec.reduce_dtype);
      largest.reduced = std::max(largest.reduced, reduced);
      if (!group->gradients().reduces_in_stages()) continue;
      const int64_t summed = limited(group->layout().shard_numel(), traffic.reduce_bucket_size,
                                     comm::sum_dtype(spec.reduce_dtype));
      largest.summed = std::max(largest.summed, summed);
    }
  }
  return largest;
}

void warm_up_links(const Engine& engine) {
  const auto& mesh = engine.mesh();
  if (mesh.world().device().is_cpu()) return;
  const auto largest = largest_messages(engine);
  const bool in_stages = largest.summed > 0;
  const auto inside = in_stages ? std::max(largest.gathered, largest.reduced) : largest.gathered;
  if (mesh.num_shards() > 1) mesh.shards().warm_up(inside);
  if (in_stages) {
    mesh.replicas().warm_up(largest.summed);
  } else if (mesh.world().size() > 1) {
    mesh.in_order().warm_up(largest.reduced);
  }
}

}  // namespace fullshard::engine
