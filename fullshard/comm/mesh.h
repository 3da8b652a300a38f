// The ranks on two axes, replicas × shards: rank = replica · num_shards + shard. A model is sharded
// along the shards axis and replicated along the other.
#pragma once

#include "fullshard/comm/world.h"

namespace fullshard {

class Mesh {
 public:
  // Collective. A number of shards that does not divide the world is an error that lists the
  // divisors.
  Mesh(const World& world, int num_shards);

  int num_shards() const { return num_shards_; }
  int num_replicas() const { return world_.size() / num_shards_; }
  int shard() const { return world_.rank() % num_shards_; }
  int replica() const { return world_.rank() / num_shards_; }

  const World& world() const { return world_; }
  const Communicator& everyone() const { return world_.communicator(); }
  const Communicator& shards() const { return shards_; }  // the ranks that hold one copy together
  const Communicator& replicas() const { return replicas_; }  // the ranks that hold the same shard

 private:
  World world_;
  int num_shards_;
  Communicator shards_;
  Communicator replicas_;
};

}  // namespace fullshard
