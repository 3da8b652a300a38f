// SPDX-License-Identifier: Apache-2.0
// Every strategy trains as the unsharded model does, and all of them to the same bits.
#include <gtest/gtest.h>

#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

ShardOptions with_strategy(Strategy strategy) {
  ShardOptions options;
  options.sharding.strategy = strategy;
  return options;
}

ShardOptions with_stage(int stage) {
  ShardOptions options;
  options.sharding.zero_stage = stage;
  return options;
}

ShardOptions with_factor(int factor, Strategy strategy = Strategy::full_shard) {
  auto options = with_strategy(strategy);
  options.sharding.sharding_factor = factor;
  return options;
}

std::vector<std::pair<std::string, ShardOptions>> all_shardings(int world_size) {
  std::vector<std::pair<std::string, ShardOptions>> list;
  for (int i = 1; i <= 5; ++i) {
    const auto strategy = static_cast<Strategy>(i);
    list.emplace_back(std::string(name_of(strategy)), with_strategy(strategy));
  }
  for (int stage = 0; stage <= 3; ++stage) {
    list.emplace_back("stage " + std::to_string(stage), with_stage(stage));
  }
  for (int factor = 1; factor <= world_size; ++factor) {
    if (world_size % factor != 0) continue;
    list.emplace_back("factor " + std::to_string(factor), with_factor(factor));
    list.emplace_back("hybrid zero2, factor " + std::to_string(factor),
                      with_factor(factor, Strategy::hybrid_shard_zero2));
  }
  auto private_copies = with_strategy(Strategy::full_shard);
  private_copies.share_host_copy = false;
  list.emplace_back("FULL_SHARD with private copies", private_copies);
  private_copies.schedule.forward_prefetch = true;
  private_copies.schedule.backward_prefetch = BackwardPrefetch::post;
  list.emplace_back("FULL_SHARD with both prefetches", private_copies);
  return list;
}

class Worlds : public ::testing::TestWithParam<int> {};

TEST_P(Worlds, EveryShardingEqualsTheUnshardedRunAndEachOtherToTheBit) {
  const int size = GetParam();
  const TrainingOptions training;
  const auto expected = train_unsharded(training, size);
  std::optional<Outcome> first;
  for (const auto& [what, options] : all_shardings(size)) {
    SCOPED_TRACE(what);
    const auto outcome = train_on_threads({.ranks = size}, options, training);
    expect_close(outcome, expected, 1e-5);
    if (!first) first = outcome;
    expect_same_bits(outcome, *first, what);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Worlds, ::testing::Values(1, 2, 3, 4));

TEST(Backends, GlooGivesTheBitsOfShm) {
  const TrainingOptions training{.steps = 2};
  for (const int size : {2, 4}) {
    for (const auto& options : {with_stage(0), with_stage(2), with_factor(2), with_stage(3)}) {
      const auto shm = train_on_threads({.ranks = size}, options, training);
      const auto gloo = train_on_threads({.ranks = size, .backend = "gloo"}, options, training);
      expect_same_bits(gloo, shm, "gloo against shm");
    }
  }
}

// Hosts that hold every second rank: the replicas of a hybrid mesh are the hosts all the same, and
// what is gathered never leaves them.
TEST(Backends, AHybridMeshOfScatteredRanksHasTheBitsOfEveryOtherSharding) {
  const TrainingOptions training{.steps = 2};
  const ThreadRanks scattered{.ranks = 4, .backend = "gloo", .hosts = {0, 1, 0, 1}};
  const auto expected = train_on_threads(scattered, with_stage(3), training);
  for (const auto strategy : {Strategy::hybrid_shard, Strategy::hybrid_shard_zero2}) {
    const auto hybrid = train_on_threads(scattered, with_strategy(strategy), training);
    expect_same_bits(hybrid, expected, std::string(name_of(strategy)));
  }
}

TEST(Accumulation, ReducingEveryMicroBatchOrOnceEqualsTheUnshardedRun) {
  TrainingOptions training{.steps = 3, .micro_batches = 3};
  const auto expected = train_unsharded(training, 2);
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool no_sync : {false, true}) {
      training.no_sync = no_sync;
      expect_close(train_on_threads({.ranks = 2}, with_stage(stage), training), expected, 1e-5);
    }
  }
}

TEST(Accumulation, GivesTheSameBitsForEveryStage) {
  TrainingOptions training{.steps = 3, .micro_batches = 3};
  const auto expected = train_on_threads({.ranks = 2}, with_stage(3), training);
  for (const int stage : {0, 1, 2}) {
    expect_same_bits(train_on_threads({.ranks = 2}, with_stage(stage), training), expected,
                     "stage " + std::to_string(stage));
  }
}

TEST(Recomputation, ChangesNoBit) {
  TrainingOptions training{.steps = 3};
  const auto expected = train_on_threads({.ranks = 2}, with_stage(3), training);
  training.recompute = true;
  expect_same_bits(train_on_threads({.ranks = 2}, with_stage(3), training), expected, "recomputed");
}

}  // namespace
}  // namespace fullshard::testing
