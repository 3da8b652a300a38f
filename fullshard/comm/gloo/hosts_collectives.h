// SPDX-License-Identifier: Apache-2.0
// Collectives of a group with equally many ranks on each of several hosts: memory that they share
// inside a host, gloo between hosts. The ranks of one place, one on each host, form a lane, so that
// every rank of a host carries its part of the traffic and has connections to one rank per host.
//
//   2 hosts × 2 ranks:   host 0: 0 ═ 1     ═ shared memory
//                                |   |     | lanes over gloo
//                        host 1: 2 ═ 3
#pragma once

#include <memory>
#include <vector>

#include "fullshard/comm/gloo/gloo_collectives.h"
#include "fullshard/comm/reduce_parts.h"

namespace fullshard::comm {

struct HostsLayout {
  // `hosts` of each rank of the group; `rank` of this one in it.
  HostsLayout(const std::vector<int>& hosts, int rank);

  int size() const { return static_cast<int>(order.ranks.size()); }
  int num_hosts() const { return order.num_hosts(); }
  int ranks_per_host() const { return order.ranks_per_host; }
  int host_of(int rank) const { return order.place_of(rank) / order.ranks_per_host; }
  int place_of(int rank) const { return order.place_of(rank) % order.ranks_per_host; }
  int lane_rank(int host) const { return order.rank_at(host, own_place); }

  HostOrder order;
  int own_rank;
  int own_host;
  int own_place;
};

// `local` joins this host's ranks of the group, in their order; calls come from the worker alone.
std::shared_ptr<const GlooCollectives> make_hosts_collectives(HostsLayout layout,
                                                              std::shared_ptr<Backend> local);

}  // namespace fullshard::comm
