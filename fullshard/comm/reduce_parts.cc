// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/reduce_parts.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace fullshard::comm {

HostOrder::HostOrder(const std::vector<int>& hosts) : ranks(hosts.size()) {
  std::iota(ranks.begin(), ranks.end(), 0);
  // A group's hosts in order of their lowest rank, as the world numbers them.
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return hosts[static_cast<size_t>(a)] < hosts[static_cast<size_t>(b)];
  });
  int previous = -1;
  for (const int rank : ranks) {
    const int host = hosts[static_cast<size_t>(rank)];
    if (host != previous) rows_per_host.push_back(0);
    ++rows_per_host.back();
    previous = host;
  }
  const bool are_equal = std::adjacent_find(rows_per_host.begin(), rows_per_host.end(),
                                            std::not_equal_to<>()) == rows_per_host.end();
  if (are_equal) ranks_per_host = rows_per_host.front();
}

int HostOrder::place_of(int rank) const {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace fullshard::comm
