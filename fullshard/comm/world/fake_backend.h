// SPDX-License-Identifier: Apache-2.0
// A pretence of many ranks in one: every other rank is taken to hold what this one holds. Nothing
// leaves the process; tests of layouts and schedules, and estimates, read the recorder.
#pragma once

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

class FakeBackend : public Backend {
 public:
  FakeBackend(int rank, int size, bool shares_memory = false)
      : rank_(rank), size_(size), shares_memory_(shares_memory) {}

  std::string_view name() const override { return "fake"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  bool shares_memory() const override { return shares_memory_; }
  at::Tensor allocate_common(int64_t numel, at::ScalarType dtype) override;
  std::shared_ptr<SharedCounters> make_counters(int slots) override;

 private:
  int rank_;
  int size_;
  bool shares_memory_;
};

}  // namespace fullshard::comm
