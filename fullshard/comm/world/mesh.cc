// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/world/mesh.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

int checked(int num_shards, int ranks) {
  std::vector<int> divisors;
  for (int number = 1; number <= ranks; ++number) {
    if (ranks % number == 0) divisors.push_back(number);
  }
  check(num_shards > 0 && ranks % num_shards == 0,
        "mesh: {} shards do not divide the {} ranks; use one of {}", num_shards, ranks,
        fmt::join(divisors, ", "));
  return num_shards;
}

std::vector<int> hosts_of_world(const World& world) {
  std::vector<int> hosts;
  for (int rank = 0; rank < world.size(); ++rank) hosts.push_back(world.host_of(rank));
  return hosts;
}

std::vector<int> places_in(const std::vector<int>& order) {
  std::vector<int> places(order.size());
  for (size_t place = 0; place < order.size(); ++place) {
    places[static_cast<size_t>(order[place])] = static_cast<int>(place);
  }
  return places;
}

std::optional<Communicator> communicator_in(const std::vector<int>& order, const World& world) {
  if (std::is_sorted(order.begin(), order.end())) return std::nullopt;
  return world.split(std::vector<std::vector<int>>{order}, "mesh");
}

std::vector<std::vector<int>> shard_groups(const std::vector<int>& order, int num_shards) {
  std::vector<std::vector<int>> groups(order.size() / static_cast<size_t>(num_shards));
  for (size_t place = 0; place < order.size(); ++place) {
    groups[place / static_cast<size_t>(num_shards)].push_back(order[place]);
  }
  return groups;
}

std::vector<std::vector<int>> replica_groups(const std::vector<int>& order, int num_shards) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(num_shards));
  for (size_t place = 0; place < order.size(); ++place) {
    groups[place % static_cast<size_t>(num_shards)].push_back(order[place]);
  }
  return groups;
}

}  // namespace

std::vector<int> mesh_order(const std::vector<int>& hosts, int num_shards) {
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  if (num_shards == 1 || num_shards == static_cast<int>(hosts.size())) return order;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return hosts[static_cast<size_t>(a)] < hosts[static_cast<size_t>(b)];
  });
  return order;
}

Mesh::Mesh(const World& world, int num_shards)
    : world_(world),
      num_shards_(checked(num_shards, world.size())),
      order_(mesh_order(hosts_of_world(world), num_shards)),
      places_(places_in(order_)),
      in_order_(communicator_in(order_, world)),
      shards_(world.split(shard_groups(order_, num_shards), "shards")),
      replicas_(world.split(replica_groups(order_, num_shards), "replicas")) {}

bool Mesh::gathers_between_hosts() const {
  for (size_t place = 1; place < order_.size(); ++place) {
    const bool is_first = place % static_cast<size_t>(num_shards_) == 0;
    if (!is_first && world_.host_of(order_[place]) != world_.host_of(order_[place - 1]))
      return true;
  }
  return false;
}

}  // namespace fullshard
