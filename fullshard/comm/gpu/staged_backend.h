// SPDX-License-Identifier: Apache-2.0
// Collectives of device tensors by way of host memory: for ranks that share one GPU, where nccl
// refuses, and for tests. The same sums in the same order as the host's backend.
#pragma once

#include <memory>

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

class StagedBackend : public Backend {
 public:
  explicit StagedBackend(std::shared_ptr<Backend> host) : host_(std::move(host)) {}

  std::string_view name() const override { return host_->name(); }
  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override { host_->barrier(call); }
  // Memory of the host; device memory is the caller's to allocate.
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return host_->allocate(numel, dtype);
  }

 private:
  at::Tensor on_host(const at::Tensor& tensor, bool with_values);

  std::shared_ptr<Backend> host_;
};

}  // namespace fullshard::comm
