// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/fake_world.h"

#include <algorithm>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/fake_backend.h"
#include "fullshard/comm/world/world_impl.h"

namespace fullshard::comm {
namespace {

class FakeHosts : public Transport {
 public:
  // `hosts` of the ranks.
  FakeHosts(const FakeRanks& ranks, std::vector<int> hosts)
      : rank_(ranks.rank),
        share_memory_(ranks.share_memory),
        hosts_(std::move(hosts)),
        watch_(ranks.watch) {}
  std::string_view name() const override { return "fake"; }
  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string&) override {
    for (const std::vector<int>& group : groups) {
      const auto place = std::find(group.begin(), group.end(), rank_);
      if (place == group.end()) continue;
      const int size = static_cast<int>(group.size()), on_host = num_on_host(group);
      auto backend = std::make_shared<FakeBackend>(static_cast<int>(place - group.begin()), size,
                                                   share_memory_ && on_host == size);
      backend->tell(watch_, {size, on_host});
      return backend;
    }
    fail("fake world: rank {} is in none of the {} groups", rank_, groups.size());
  }
  void leave(const std::string&) noexcept override {}

 private:
  int num_on_host(const std::vector<int>& group) const {
    const int own = hosts_[static_cast<size_t>(rank_)];
    return static_cast<int>(std::count_if(group.begin(), group.end(), [&](int rank) {
      return hosts_[static_cast<size_t>(rank)] == own;
    }));
  }

  int rank_;
  bool share_memory_;
  std::vector<int> hosts_;
  std::shared_ptr<CallWatch> watch_;
};

}  // namespace

World fake_world(const FakeRanks& ranks) {
  check(ranks.size > 0, "a fake world has {} ranks, expected at least 1", ranks.size);
  check(ranks.rank >= 0 && ranks.rank < ranks.size, "a fake rank is {}, expected 0 to {}",
        ranks.rank, ranks.size - 1);
  check(ranks.ranks_per_host > 0, "a fake host has {} ranks, expected at least 1",
        ranks.ranks_per_host);
  std::vector<int> hosts;
  for (int rank = 0; rank < ranks.size; ++rank) hosts.push_back(rank / ranks.ranks_per_host);
  auto transport = std::make_shared<FakeHosts>(ranks, hosts);
  return World(std::make_shared<World::Impl>(ranks.rank, std::move(hosts), Timeouts{},
                                             std::make_shared<Recorder>(ranks.rank),
                                             std::move(transport), ranks.device));
}

}  // namespace fullshard::comm
