// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/traffic.h"

#include <algorithm>
#include <utility>

namespace fullshard::engine {
namespace {

// Calls window(begin, length) over [0, numel) in steps of at most `most` elements (0: one step).
template <class Window>
void for_each_window(int64_t numel, int64_t most, const Window& window) {
  const int64_t step = most > 0 ? std::max<int64_t>(most, 1) : numel;
  for (int64_t begin = 0; begin < numel; begin += step) {
    window(begin, std::min(step, numel - begin));
  }
}

// A message of `bucket` elements over all rows takes this many of each row.
int64_t per_row(int64_t bucket, int64_t rows) {
  return bucket > 0 ? std::max<int64_t>(bucket / rows, 1) : 0;
}

}  // namespace

void Works::wait() {
  for (auto& work : works_) work.wait();
  works_.clear();
}

void Works::wait_for_results() {
  for (auto& work : works_) work.wait_for_result();
}

void Works::advance() {
  for (auto& work : works_) work.advance();
}

bool shards_are_hosts(const Mesh& mesh) {
  const auto& world = mesh.world();
  for (int rank = 0; rank < world.size(); ++rank) {
    if (mesh.replica_of(rank) != world.host_of(rank)) return false;
  }
  return true;
}

Traffic::Traffic(const Mesh& mesh, const TrafficOptions& options)
    : mesh_(mesh),
      options_(options),
      reduces_in_stages_(options.reduce_scatter && mesh.num_shards() > 1 &&
                         mesh.num_replicas() > 1 && shards_are_hosts(mesh)) {}

Works Traffic::gather(const at::Tensor& full, const at::Tensor& shard,
                      std::string_view label) const {
  if (!options_.allgather_partitions) return gather_by_broadcast(full, shard, label);
  Works works;
  const auto rows = full.view({mesh_.num_shards(), shard.numel()});
  for_each_window(shard.numel(), per_row(options_.allgather_bucket_size, mesh_.num_shards()),
                  [&](int64_t begin, int64_t length) {
                    works.add(mesh_.shards().all_gather(rows.narrow(1, begin, length),
                                                        shard.narrow(0, begin, length), label));
                  });
  return works;
}

Works Traffic::gather_by_broadcast(const at::Tensor& full, const at::Tensor& shard,
                                   std::string_view label) const {
  Works works;
  const auto rows = full.view({mesh_.num_shards(), shard.numel()});
  auto own = rows.select(0, mesh_.shard());
  if (own.data_ptr() != shard.data_ptr()) own.copy_(shard);
  for (int owner = 0; owner < mesh_.num_shards(); ++owner) {
    const auto row = rows.select(0, owner);
    for_each_window(
        row.numel(), options_.allgather_bucket_size, [&](int64_t begin, int64_t length) {
          works.add(mesh_.shards().broadcast(row.narrow(0, begin, length), owner, label));
        });
  }
  return works;
}

Works Traffic::reduce(const at::Tensor& shard, const at::Tensor& full, bool accumulate,
                      std::string_view label,
                      std::function<void(int64_t, int64_t)> on_result) const {
  if (!options_.reduce_scatter) return reduce_by_all_reduce(shard, full, accumulate, label);
  Works works;
  const auto rows = full.view({mesh_.num_shards(), shard.numel()});
  ReduceOptions options{ReduceOp::average, mesh_.num_shards(), accumulate};
  const int64_t window = per_row(options_.reduce_bucket_size, mesh_.num_shards());
  // Windows may finish in any order.
  if (window == 0 || window >= shard.numel()) options.on_result = std::move(on_result);
  for_each_window(shard.numel(), window, [&](int64_t begin, int64_t length) {
    works.add(mesh_.in_order().reduce_scatter(shard.narrow(0, begin, length),
                                              rows.narrow(1, begin, length), options, label));
  });
  return works;
}

Works Traffic::sum_over_shards(const at::Tensor& sums, const at::Tensor& full,
                               std::string_view label) const {
  Works works;
  const auto rows = full.view({mesh_.num_shards(), sums.numel()});
  const ReduceOptions options{ReduceOp::sum, mesh_.num_shards()};
  for_each_window(
      sums.numel(), per_row(options_.reduce_bucket_size, mesh_.num_shards()),
      [&](int64_t begin, int64_t length) {
        works.add(mesh_.shards().reduce_scatter(sums.narrow(0, begin, length),
                                                rows.narrow(1, begin, length), options, label));
      });
  return works;
}

Works Traffic::sum_over_replicas(const at::Tensor& sums, std::string_view label) const {
  Works works;
  for_each_window(sums.numel(), options_.reduce_bucket_size, [&](int64_t begin, int64_t length) {
    works.add(mesh_.replicas().all_reduce(sums.narrow(0, begin, length), ReduceOp::sum, label));
  });
  return works;
}

Works Traffic::reduce_by_all_reduce(const at::Tensor& shard, const at::Tensor& full,
                                    bool accumulate, std::string_view label) const {
  for_each_window(full.numel(), options_.reduce_bucket_size, [&](int64_t begin, int64_t length) {
    mesh_.everyone().all_reduce(full.narrow(0, begin, length), ReduceOp::average, label).wait();
  });
  const auto own = full.narrow(0, mesh_.shard() * shard.numel(), shard.numel());
  if (own.data_ptr() != shard.data_ptr()) {
    if (accumulate) {
      shard.add_(own);
    } else {
      shard.copy_(own);
    }
  }
  return {};
}

}  // namespace fullshard::engine
