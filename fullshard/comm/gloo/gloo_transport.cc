// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_transport.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "fullshard/base/error.h"
#include "fullshard/comm/gloo/gloo_backend.h"
#include "fullshard/comm/gloo/gloo_watch.h"
#include "fullshard/comm/gloo/hosts_collectives.h"
#include "fullshard/comm/gloo/uneven_hosts.h"
#include "fullshard/comm/self_backend.h"
#include "fullshard/comm/shm/shm_domain.h"

namespace fullshard::comm {
namespace {

class GlooTransport : public Transport {
 public:
  GlooTransport(const GlooOptions& options, std::shared_ptr<Store> store,
                std::shared_ptr<Recorder> recorder)
      : options_(options),
        store_(std::move(store)),
        watch_(std::make_shared<GlooWatch>(store_->under("watch"), options.rank,
                                           static_cast<int>(options.hosts.size()),
                                           std::move(recorder))) {
    if (!options_.domain) return;
    options_.domain->ask_outside([watch = watch_] { return watch->missing(); });
  }

  std::string_view name() const override { return "gloo"; }

  std::shared_ptr<Backend> make_backend(const std::vector<std::vector<int>>& groups,
                                        const std::string& name) override {
    const int number = num_groups_++;
    const auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& ranks) {
      return place_in(ranks, options_.rank) < ranks.size();
    });
    check(group != groups.end(), "gloo: rank {} is in none of the groups '{}'", options_.rank,
          name);
    auto local = make_local(groups, name);
    if (group->size() == 1) return std::make_shared<SelfBackend>();
    if (local && local->size() == static_cast<int>(group->size())) return local;
    GlooMembers members{.group = name,
                        .rank = static_cast<int>(place_in(*group, options_.rank)),
                        .ranks = *group,
                        .hosts = {}};
    for (const int rank : *group) members.hosts.push_back(host_of(rank));
    return connect(std::move(members), std::move(local), number);
  }

  void leave(const std::string& reason) noexcept override {
    watch_->leave(reason);
    if (options_.domain) options_.domain->leave(reason);
  }

 private:
  static size_t place_in(const std::vector<int>& ranks, int rank) {
    return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
  int host_of(int rank) const { return options_.hosts[static_cast<size_t>(rank)]; }

  // What the members of this rank's group on this host share; none where every group has one here.
  // All ranks of a host see the same groups, so they make the same ones.
  std::shared_ptr<Backend> make_local(const std::vector<std::vector<int>>& groups,
                                      const std::string& name) {
    if (!options_.domain) return nullptr;
    const std::vector<int> here = ranks_of_host(options_.hosts, options_.rank);
    std::vector<std::vector<int>> local;
    size_t largest = 0;
    for (const std::vector<int>& group : groups) {
      std::vector<int> members;
      for (const int rank : group) {
        if (host_of(rank) == host_of(options_.rank)) {
          members.push_back(static_cast<int>(place_in(here, rank)));
        }
      }
      largest = std::max(largest, members.size());
      if (!members.empty()) local.push_back(std::move(members));
    }
    return largest > 1 ? options_.domain->make_backend(local, name) : nullptr;
  }

  std::shared_ptr<Backend> connect(GlooMembers members, std::shared_ptr<Backend> local,
                                   int number) {
    const HostOrder order(members.hosts);
    if (shares_some_host(order) && order.ranks_per_host == 0) {
      return connect_uneven(std::move(members), std::move(local), number);
    }
    if (local && local->size() > 1 && order.ranks_per_host > 0) {
      HostsLayout layout(members.hosts, members.rank);
      std::vector<int> lane;
      for (int host = 0; host < layout.num_hosts(); ++host) {
        lane.push_back(members.ranks[static_cast<size_t>(layout.lane_rank(host))]);
      }
      const int own_host = layout.own_host;
      return over(std::move(members), lane, own_host, number,
                  make_hosts_collectives(std::move(layout), std::move(local)));
    }
    const std::vector<int> everyone = members.ranks;
    const int rank = members.rank;
    auto collectives = make_direct_collectives(rank, members.hosts);
    return over(std::move(members), everyone, rank, number, std::move(collectives));
  }

  // The same on all ranks of a group: wherever a world has several hosts, ranks of one share
  // memory.
  static bool shares_some_host(const HostOrder& order) {
    return order.num_hosts() > 1 &&
           *std::max_element(order.rows_per_host.begin(), order.rows_per_host.end()) > 1;
  }

  std::shared_ptr<Backend> connect_uneven(GlooMembers members, std::shared_ptr<Backend> local,
                                          int number) {
    UnevenLayout layout(members.hosts, members.rank);
    if (layout.ranks_on(layout.own_host) == 1) local = std::make_shared<SelfBackend>();
    check(local != nullptr,
          "gloo: rank {} shares no memory with the others of its host in group '{}', which holds "
          "different numbers of ranks on its hosts",
          options_.rank, members.group);
    std::vector<int> lane;
    for (int host = 0; host < layout.num_hosts() && layout.has_lane(); ++host) {
      lane.push_back(members.ranks[static_cast<size_t>(layout.rank_at(host, layout.own_place))]);
    }
    const int own_host = layout.own_host;
    return over(std::move(members), lane, own_host, number,
                make_uneven_collectives(std::move(layout), std::move(local)));
  }

  // A rank without a lane is connected with nobody.
  std::shared_ptr<Backend> over(GlooMembers members, const std::vector<int>& lane, int lane_rank,
                                int number, std::shared_ptr<const GlooCollectives> collectives) {
    std::unique_ptr<GlooGroup> group;
    if (!lane.empty()) {
      const std::string prefix = fmt::format("group {}/{}", number, lane.front());
      group = connect_lane(members, lane, lane_rank, prefix);
    }
    auto connected = std::make_unique<GlooLane>(std::move(group), lane, members.group);
    return std::make_shared<GlooBackend>(
        std::make_shared<GlooWorker>(std::move(members), std::move(connected), watch_,
                                     options_.timeouts, options_.domain),
        std::move(collectives));
  }

  std::unique_ptr<GlooGroup> connect_lane(const GlooMembers& members, const std::vector<int>& lane,
                                          int lane_rank, const std::string& prefix) {
    try {
      return std::make_unique<GlooGroup>(*store_->under(prefix), lane_rank,
                                         static_cast<int>(lane.size()), options_.device,
                                         options_.timeouts.init);
    } catch (const std::exception& error) {
      const std::string text = error.what();
      const auto gone = watch_->find_gone(members.ranks, {});
      fail("rank {}: group {} of ranks [{}] cannot connect: {}", options_.rank, members.group,
           fmt::join(members.ranks, ", "),
           gone ? fmt::format("rank {} {}; {}; {}", gone->rank, gone->how, gone->last, gone->hint)
                : text.substr(0, text.find('\n')));
    }
  }

  GlooOptions options_;
  std::shared_ptr<Store> store_;
  std::shared_ptr<GlooWatch> watch_;
  int num_groups_ = 0;
};

}  // namespace

std::vector<int> ranks_of_host(const std::vector<int>& hosts, int rank) {
  std::vector<int> ranks;
  for (int each = 0; each < static_cast<int>(hosts.size()); ++each) {
    if (hosts[static_cast<size_t>(each)] == hosts[static_cast<size_t>(rank)]) ranks.push_back(each);
  }
  return ranks;
}

std::shared_ptr<Transport> make_gloo_transport(const GlooOptions& options,
                                               std::shared_ptr<Store> store,
                                               std::shared_ptr<Recorder> recorder) {
  return std::make_shared<GlooTransport>(options, std::move(store), std::move(recorder));
}

}  // namespace fullshard::comm
