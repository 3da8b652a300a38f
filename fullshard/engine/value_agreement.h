// SPDX-License-Identifier: Apache-2.0
// Ranks that hold the same tensors hold the same values, or are told which tensor differs first:
// replicas that start apart would stay apart, and shards cut from different models are no model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fullshard/comm/communicator.h"
#include "fullshard/engine/plan/wrap.h"

namespace fullshard::engine {

class Engine;

struct HashedTensor {
  std::string name;  // "parameter 'blocks.0.up.weight'"
  uint64_t hash = 0;
};

// Collective, before the model is sharded. Compares the parameters and buffers of units, as every
// rank has made them; what is deferred has no values yet, and what ignored modules hold is the
// user's.
void check_values_agree(const Communicator& everyone, const WrapPlan& plan);

// Collective, after every rank has written its masters. Compares the ranks that hold the same
// shard; `what` is the call that wrote them.
void check_replicas_agree(const Engine& engine, std::string_view what);

// Collective. Ranks of one kind must have the same hashes (`kinds` holds one number per rank); all
// ranks list the same names. One number per rank is sent, and the list only where they differ. The
// error, the same on all ranks, is "{what}: {tensor} has other values on rank 2 than on rank 0;
// {remedy}", for the first tensor that differs.
void check_hashes_agree(const Communicator& everyone, const std::vector<HashedTensor>& own,
                        const std::vector<int>& kinds, std::string_view what,
                        std::string_view remedy);

}  // namespace fullshard::engine
