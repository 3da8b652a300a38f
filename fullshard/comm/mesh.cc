#include "fullshard/comm/mesh.h"

#include <fmt/ranges.h>

#include <vector>

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

std::vector<std::vector<int>> shard_groups(int ranks, int num_shards) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(ranks / num_shards));
  for (int rank = 0; rank < ranks; ++rank) {
    groups[static_cast<size_t>(rank / num_shards)].push_back(rank);
  }
  return groups;
}

std::vector<std::vector<int>> replica_groups(int ranks, int num_shards) {
  std::vector<std::vector<int>> groups(static_cast<size_t>(num_shards));
  for (int rank = 0; rank < ranks; ++rank) {
    groups[static_cast<size_t>(rank % num_shards)].push_back(rank);
  }
  return groups;
}

}  // namespace

Mesh::Mesh(const World& world, int num_shards)
    : world_(world),
      num_shards_(checked(num_shards, world.size())),
      shards_(world.split(shard_groups(world.size(), num_shards), "shards")),
      replicas_(world.split(replica_groups(world.size(), num_shards), "replicas")) {}

}  // namespace fullshard
