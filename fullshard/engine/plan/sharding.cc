// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/plan/sharding.h"

#include <fmt/format.h>

#include <array>
#include <cctype>

#include "fullshard/base/error.h"

namespace fullshard {
namespace {

constexpr auto r = Placement::replicated;
constexpr auto s = Placement::sharded;

struct StrategyRow {
  Strategy strategy;
  std::string_view name;
  bool hybrid;                 // shards inside a host
  bool reshard_after_forward;  // else the full parameters stay until the end of backward
};

// no_shard is full sharding over one shard: nothing is cut, whatever the placements say.
constexpr std::array<StrategyRow, 5> kStrategies = {{
    {Strategy::full_shard, "FULL_SHARD", false, true},
    {Strategy::shard_grad_op, "SHARD_GRAD_OP", false, false},
    {Strategy::no_shard, "NO_SHARD", false, false},
    {Strategy::hybrid_shard, "HYBRID_SHARD", true, true},
    {Strategy::hybrid_shard_zero2, "HYBRID_SHARD_ZERO2", true, false},
}};

constexpr std::array<Sharding, 4> kStages = {{{r, r, r}, {r, r, s}, {r, s, s}, {s, s, s}}};

const StrategyRow& row_of(Strategy strategy) {
  return kStrategies[static_cast<size_t>(strategy) - 1];
}

std::string canonical(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool separator = c == ' ' || c == '-' || c == '_';
    result += separator ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return result;
}

int hybrid_shards(Strategy strategy, int world_size, int ranks_per_host) {
  check(ranks_per_host > 0,
        "{}: the hosts of the world of {} hold different numbers of ranks; give a sharding factor "
        "out of {}",
        name_of(strategy), world_size, divisors_of(world_size));
  check(world_size % ranks_per_host == 0,
        "{}: {} ranks per host do not divide the world of {}; give a sharding factor out of {}",
        name_of(strategy), ranks_per_host, world_size, divisors_of(world_size));
  return ranks_per_host;
}

int default_shards(const ShardingOptions& options, int world_size, int ranks_per_host) {
  if (options.zero_stage) return *options.zero_stage == 0 ? 1 : world_size;
  if (options.strategy == Strategy::no_shard) return 1;
  if (row_of(options.strategy).hybrid) {
    return hybrid_shards(options.strategy, world_size, ranks_per_host);
  }
  return world_size;
}

Sharding placements(const ShardingOptions& options) {
  if (options.zero_stage) return kStages[*options.zero_stage];
  return options.strategy == Strategy::no_shard ? kStages[0] : kStages[3];
}

}  // namespace

Strategy parse_strategy(std::string_view text) {
  const auto wanted = canonical(text);
  std::string known;
  for (const auto& row : kStrategies) {
    const int number = static_cast<int>(row.strategy);
    if (wanted == row.name || wanted == std::to_string(number)) return row.strategy;
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", row.name, number);
  }
  fail_as(ErrorKind::usage, "sharding strategy '{}': unknown; one of {}", text, known);
}

std::string_view name_of(Strategy strategy) { return row_of(strategy).name; }

std::string divisors_of(int number) {
  std::string text;
  for (int i = 1; i <= number; ++i) {
    if (number % i == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  }
  return text;
}

ShardingDecision decide_sharding(const ShardingOptions& options, int world_size,
                                 int ranks_per_host) {
  if (options.zero_stage && (*options.zero_stage < 0 || *options.zero_stage > 3)) {
    fail_as(ErrorKind::usage, "ZeRO stage {}: unknown; one of 0, 1, 2, 3", *options.zero_stage);
  }
  const int factor = options.sharding_factor ? *options.sharding_factor
                                             : default_shards(options, world_size, ranks_per_host);
  if (factor > 1 && placements(options) == kStages[0]) {
    fail_as(ErrorKind::usage, "sharding factor {} with {}: nothing is sharded there; drop one",
            factor, options.zero_stage ? "ZeRO stage 0" : name_of(options.strategy));
  }
  if (factor < 1 || world_size % factor != 0) {
    fail_as(ErrorKind::usage, "sharding factor {}: does not divide the world of {}; one of {}",
            factor, world_size, divisors_of(world_size));
  }
  ShardingDecision decision;
  decision.sharding = placements(options);
  decision.num_shards = factor;
  decision.reshard_after_forward = options.reshard_after_forward.value_or(
      options.zero_stage || row_of(options.strategy).reshard_after_forward);
  return decision;
}

}  // namespace fullshard
