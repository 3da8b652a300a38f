// SPDX-License-Identifier: Apache-2.0
#include "tests/checkpoint/small_model.h"

#include <fmt/format.h>

namespace fullshard::testing {
namespace {

ShardingOptions by_strategy(Strategy strategy) {
  ShardingOptions sharding;
  sharding.strategy = strategy;
  if (strategy == Strategy::hybrid_shard) sharding.sharding_factor = 2;
  return sharding;
}

ShardingOptions by_stage(int stage) {
  ShardingOptions sharding;
  sharding.zero_stage = stage;
  return sharding;
}

Way way(const std::string& name, int ranks, const ShardingOptions& sharding, bool share = true) {
  Way result{
      fmt::format("{} on {} ranks{}", name, ranks, share ? "" : ", nothing shared"), ranks, {}};
  result.options.sharding = sharding;
  result.options.share_host_copy = share;
  result.options.ignored_modules = "aside";
  return result;
}

}  // namespace

std::vector<Way> all_ways() {
  std::vector<Way> ways;
  for (const int ranks : {1, 2, 3}) {
    for (const bool share : {true, false}) {
      ways.push_back(way("FULL_SHARD", ranks, by_strategy(Strategy::full_shard), share));
    }
    ways.push_back(way("SHARD_GRAD_OP", ranks, by_strategy(Strategy::shard_grad_op)));
    ways.push_back(way("NO_SHARD", ranks, by_strategy(Strategy::no_shard)));
    ways.push_back(way("stage 1", ranks, by_stage(1)));
    ways.push_back(way("stage 2", ranks, by_stage(2)));
  }
  ways.push_back(way("HYBRID_SHARD", 4, by_strategy(Strategy::hybrid_shard)));
  ways.push_back(way("HYBRID_SHARD", 4, by_strategy(Strategy::hybrid_shard), false));
  auto persistent = way("FULL_SHARD, small ones persistent", 2, by_strategy(Strategy::full_shard));
  persistent.options.param_persistence_threshold = 8;
  ways.push_back(persistent);
  auto mixed = way("FULL_SHARD, round robin", 3, by_strategy(Strategy::full_shard), false);
  mixed.options.round_robin_gradients = true;
  ways.push_back(mixed);
  return ways;
}

Way in_bf16(Way way) {
  way.name += ", bf16";
  way.options.param_dtype = at::kBFloat16;
  return way;
}

Values whole_values(SmallModel& model, ShardedModel& sharded) {
  Values values;
  auto full = sharded.gather_full();
  for (const auto& item : model->named_parameters()) {
    values[item.key()] = item.value().detach().clone();
  }
  for (const auto& item : model->named_buffers()) values[item.key()] = item.value().clone();
  return values;
}

Values master_values(const ShardedModel& sharded) {
  Values values;
  for (const auto& piece : sharded.pieces()) {
    values[fmt::format("{}[{}:{}]", piece.name, piece.begin, piece.end)] = piece.master.clone();
  }
  return values;
}

}  // namespace fullshard::testing
