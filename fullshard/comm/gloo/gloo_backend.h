// SPDX-License-Identifier: Apache-2.0
// Collectives that a worker carries out over gloo: between all ranks of a group, or between hosts
// whose ranks share memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gloo/gloo_collectives.h"
#include "fullshard/comm/gloo/gloo_worker.h"

namespace fullshard::comm {

class GlooBackend : public Backend {
 public:
  GlooBackend(std::shared_ptr<GlooWorker> worker,
              std::shared_ptr<const GlooCollectives> collectives);
  ~GlooBackend() override;

  std::string_view name() const override { return "gloo"; }
  int rank() const override;
  int size() const override;

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work all_to_all(const Call& call, const at::Tensor& received, const at::Tensor& sent) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  std::shared_ptr<LinkPeers> make_link_peers() override;

 private:
  template <class Act>
  Work issue(const Call& call, const CallTerms& terms, const at::Tensor& tensor, Act act);

  std::shared_ptr<GlooWorker> worker_;
  std::shared_ptr<const GlooCollectives> collectives_;
};

}  // namespace fullshard::comm
