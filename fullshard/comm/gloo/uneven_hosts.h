// SPDX-License-Identifier: Apache-2.0
// Collectives of a group whose hosts hold different numbers of its ranks: shared memory inside a
// host, gloo between hosts, as where they hold equally many (hosts_collectives). There are as many
// lanes as the smallest host has ranks; what the other ranks have, a lane of their host carries.
//
//   3 + 2 ranks:   host 0: 0 ═ 1 ═ 2     ═ shared memory: lane 0 carries what rank 2 has
//                          |   |         | lanes over gloo
//                  host 1: 3 ═ 4
#pragma once

#include <memory>
#include <vector>

#include "fullshard/comm/gloo/gloo_collectives.h"
#include "fullshard/comm/reduce_parts.h"

namespace fullshard::comm {

struct UnevenLayout {
  // `hosts` of each rank of the group; `rank` of this one in it.
  UnevenLayout(const std::vector<int>& hosts, int rank);

  int size() const { return static_cast<int>(order.ranks.size()); }
  int num_hosts() const { return order.num_hosts(); }
  int ranks_on(int host) const { return order.rows_per_host[static_cast<size_t>(host)]; }
  int rank_at(int host, int place) const;
  int host_of(int rank) const;
  int place_of(int rank) const;
  int lane_of(int rank) const { return place_of(rank) % num_lanes; }
  bool has_lane() const { return own_place < num_lanes; }
  // Whether some rank of this host has none.
  bool lacks_lanes() const { return ranks_on(own_host) > num_lanes; }
  // The ranks of the host that the lane carries, in order; the first is the lane's own.
  std::vector<int> carried(int host, int lane) const;

  HostOrder order;
  std::vector<int> first_places;  // of each host, in the order
  int num_lanes;
  int own_rank;
  int own_host;
  int own_place;
};

// `local` joins this host's ranks of the group, in their order; calls come from the worker alone.
// Sums have the bits of the one expression (ordered_sum).
std::shared_ptr<const GlooCollectives> make_uneven_collectives(UnevenLayout layout,
                                                               std::shared_ptr<Backend> local);

}  // namespace fullshard::comm
