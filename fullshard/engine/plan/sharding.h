// SPDX-License-Identifier: Apache-2.0
// Which of a model's three states are cut over the shards axis, and which every rank holds whole.
// This is the only place that knows strategies and stages by name; everything else reads
// placements.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fullshard {

enum class Placement { replicated, sharded };

struct Sharding {
  Placement parameters = Placement::sharded;
  Placement gradients = Placement::sharded;
  Placement optimizer = Placement::sharded;

  bool operator==(const Sharding&) const = default;
};

enum class Strategy { full_shard = 1, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2 };

// By name (any case; space, dash and underscore alike) or by number 1 to 5. An unknown name is an
// error that lists those that exist.
Strategy parse_strategy(std::string_view text);
std::string_view name_of(Strategy strategy);

// What a user may say about sharding.
struct ShardingOptions {
  Strategy strategy = Strategy::full_shard;
  std::optional<int> zero_stage = {};       // 0 to 3; instead of a strategy
  std::optional<int> sharding_factor = {};  // any divisor of the world; 1 replicates
  std::optional<bool> reshard_after_forward = {};
};

// What it comes to on a world of given size.
struct ShardingDecision {
  Sharding sharding;
  int num_shards = 1;
  bool reshard_after_forward = true;
};

// `ranks_per_host` is what a hybrid strategy shards over unless a factor is given; 0: hosts hold
// different numbers of ranks.
ShardingDecision decide_sharding(const ShardingOptions& options, int world_size,
                                 int ranks_per_host);

// "1, 2, 4, 8": for messages.
std::string divisors_of(int number);

}  // namespace fullshard
