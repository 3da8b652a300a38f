// Collectives over gloo, for ranks on several hosts. One worker thread per group carries them out
// in order: it first gathers every rank's terms, so that ranks that disagree are told instead of
// reading each other's bytes wrongly, then moves the data. Sums are made locally in the order of
// ordered_sum, so that their bits equal those of the other backends.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fullshard/comm/backend.h"
#include "fullshard/comm/gloo_group.h"
#include "fullshard/comm/gloo_watch.h"
#include "fullshard/comm/world.h"

namespace fullshard {

struct GlooMembers {
  std::string group;
  int rank = 0;            // in the group
  std::vector<int> ranks;  // of the group, in the world
  std::vector<int> hosts;  // of those ranks
  int size() const { return static_cast<int>(ranks.size()); }
};

class GlooBackend : public Backend {
 public:
  GlooBackend(GlooMembers members, std::unique_ptr<GlooGroup> group,
              std::shared_ptr<GlooWatch> watch, const Timeouts& timeouts);
  // Calls in flight are given up: what peers still wait for, they are told by the watch.
  ~GlooBackend() override;

  std::string_view name() const override { return "gloo"; }
  int rank() const override;
  int size() const override;

  Work all_gather(const Call& call, const at::Tensor& rows, const at::Tensor& shard) override;
  Work reduce_scatter(const Call& call, const at::Tensor& shard, const at::Tensor& rows,
                      const ReduceOptions& options) override;
  Work broadcast(const Call& call, const at::Tensor& tensor, int root) override;
  void barrier(const Call& call) override;
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override;
  std::shared_ptr<LinkPeers> make_link_peers() override;

 private:
  class Worker;
  std::shared_ptr<Worker> worker_;
};

}  // namespace fullshard
