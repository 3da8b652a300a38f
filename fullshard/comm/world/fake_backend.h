// SPDX-License-Identifier: Apache-2.0
// A pretence of many ranks in one: every other rank is taken to hold what this one holds. Nothing
// leaves the process; tests of layouts and schedules, and estimates, read the recorder.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/world/call_watch.h"

namespace fullshard::comm {

class FakeBackend : public Backend {
 public:
  FakeBackend(int rank, int size, bool shares_memory = false)
      : rank_(rank), size_(size), shares_memory_(shares_memory) {}

  // `watch` may be null.
  void tell(std::shared_ptr<CallWatch> watch, const GroupShape& group) {
    watch_ = std::move(watch);
    group_ = group;
  }

  std::string_view name() const override { return "fake"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  bool shares_memory() const override { return shares_memory_; }
  at::Tensor allocate_common(int64_t numel, at::ScalarType dtype) override;
  std::shared_ptr<SharedCounters> make_counters(int slots) override;

 private:
  Work later(const WatchedCall& call, std::function<void()> act) const;

  int rank_;
  int size_;
  bool shares_memory_;
  std::shared_ptr<CallWatch> watch_ = nullptr;
  GroupShape group_{};
};

}  // namespace fullshard::comm
