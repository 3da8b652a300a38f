// SPDX-License-Identifier: Apache-2.0
// One rank alone: every collective is at most a copy.
#pragma once

#include "fullshard/comm/backend.h"

namespace fullshard::comm {

class SelfBackend : public Backend {
 public:
  std::string_view name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
};

}  // namespace fullshard::comm
