// SPDX-License-Identifier: Apache-2.0
// The ranks on two axes, replicas × shards. A model is sharded along the shards axis and replicated
// along the other. Ranks of one host are neighbours on the shards axis, however a launcher has
// numbered them: what is gathered in every unit then stays inside hosts as far as it fits.
#pragma once

#include <optional>
#include <vector>

#include "fullshard/comm/world/world.h"

namespace fullshard {

// The ranks in the order of the mesh, place = replica · num_shards + shard: host by host, ascending
// in each. Where one axis holds everyone there is nothing to bring together: the order of ranks.
std::vector<int> mesh_order(const std::vector<int>& hosts, int num_shards);

class Mesh {
 public:
  // Collective. A number of shards that does not divide the world is an error that lists the
  // divisors.
  Mesh(const World& world, int num_shards);

  int num_shards() const { return num_shards_; }
  int num_replicas() const { return world_.size() / num_shards_; }
  int shard() const { return shard_of(world_.rank()); }
  int replica() const { return replica_of(world_.rank()); }
  int shard_of(int rank) const { return place_of(rank) % num_shards_; }
  int replica_of(int rank) const { return place_of(rank) / num_shards_; }
  // Whether ranks that hold one copy together are on several hosts, anywhere in the world.
  bool gathers_between_hosts() const;

  const World& world() const { return world_; }
  const Communicator& everyone() const { return world_.communicator(); }
  // All ranks again, rank r of it at place r of the mesh: reduce_scatter into num_shards() slices
  // gives every rank the slice of its shard.
  const Communicator& in_order() const { return in_order_ ? *in_order_ : everyone(); }
  const Communicator& shards() const { return shards_; }  // the ranks that hold one copy together
  const Communicator& replicas() const { return replicas_; }  // the ranks that hold the same shard

 private:
  int place_of(int rank) const { return places_[static_cast<size_t>(rank)]; }

  World world_;
  int num_shards_;
  std::vector<int> order_;
  std::vector<int> places_;               // of each rank in the order
  std::optional<Communicator> in_order_;  // only where that is another order than the ranks'
  Communicator shards_;
  Communicator replicas_;
};

}  // namespace fullshard
