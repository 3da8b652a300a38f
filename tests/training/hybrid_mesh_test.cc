// SPDX-License-Identifier: Apache-2.0
// A hybrid mesh whose shards are hosts: a unit is summed inside hosts, one shard of it between
// them, with the bits of every other sharding.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "fullshard/engine/engine_access.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

ShardOptions hybrid_options(Strategy strategy, std::optional<int> factor = {}) {
  ShardOptions options;
  options.sharding.strategy = strategy;
  options.sharding.sharding_factor = factor;
  options.share_host_copy = false;
  return options;
}

ThreadRanks two_hosts(int ranks_per_host = 2) {
  return {.ranks = 2 * ranks_per_host, .backend = "gloo", .ranks_per_host = ranks_per_host};
}

struct GradientDtypes {
  std::optional<at::ScalarType> sent, kept;
};

const std::vector<GradientDtypes> kGradientDtypes = {
    {}, {at::kBFloat16, {}}, {at::kBFloat16, at::kBFloat16}, {at::kHalf, at::kFloat}};

ShardOptions with_dtypes(ShardOptions options, const GradientDtypes& dtypes) {
  options.reduce_dtype = dtypes.sent;
  options.gradient_dtype = dtypes.kept;
  return options;
}

// Everything that was asked of the group in one backward of rank 0.
std::vector<Record> records_of_backward(const ThreadRanks& ranks, const ShardOptions& options) {
  std::vector<Record> records;
  run_ranks(ranks, [&](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, options);
    const auto loss = model(make_batch(training, 0, 0, world.rank()));
    const size_t before = world.recorder().records().size();
    loss.backward();
    if (world.rank() != 0) return;
    records = world.recorder().records();
    records.erase(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(before));
  });
  return records;
}

int64_t calls_in_group(const std::vector<Record>& records, Operation operation,
                       const std::string& group) {
  return std::count_if(records.begin(), records.end(), [&](const Record& record) {
    return record.operation == operation && record.group == group;
  });
}

TEST(HybridMesh, HasTheBitsOfEveryOtherShardingOnTwoHosts) {
  for (const auto& dtypes : kGradientDtypes) {
    // Shards of 16 bits are rounded after each micro-batch, and whole gradients before it too.
    const TrainingOptions training{.steps = 2,
                                   .micro_batches = dtypes.kept == at::kBFloat16 ? 1 : 2};
    const auto full = train_on_threads(
        two_hosts(), with_dtypes(hybrid_options(Strategy::full_shard), dtypes), training);
    for (const auto strategy :
         {Strategy::no_shard, Strategy::hybrid_shard, Strategy::hybrid_shard_zero2}) {
      const auto options = with_dtypes(hybrid_options(strategy), dtypes);
      expect_same_bits(train_on_threads(two_hosts(), options, training), full,
                       std::string(name_of(strategy)));
    }
  }
}

// float(1/6) is not exact, and three addends have an order.
TEST(HybridMesh, HasTheBitsOfEveryOtherShardingOnHostsOfThree) {
  const TrainingOptions training{.steps = 2};
  const auto full = train_on_threads(two_hosts(3), hybrid_options(Strategy::full_shard), training);
  for (const auto strategy : {Strategy::no_shard, Strategy::hybrid_shard}) {
    expect_same_bits(train_on_threads(two_hosts(3), hybrid_options(strategy), training), full,
                     std::string(name_of(strategy)));
  }
}

TEST(HybridMesh, KeepsItsBitsUnderEveryKnobOfReductions) {
  const TrainingOptions training{.steps = 2, .micro_batches = 2};
  const auto expected =
      train_on_threads(two_hosts(), hybrid_options(Strategy::hybrid_shard), training);
  auto in_turn = hybrid_options(Strategy::hybrid_shard);
  in_turn.schedule.overlap_comm = false;
  auto in_buckets = hybrid_options(Strategy::hybrid_shard);
  in_buckets.traffic.reduce_bucket_size = 100;
  auto all_reduced = hybrid_options(Strategy::hybrid_shard);
  all_reduced.traffic.reduce_scatter = false;
  for (const auto& options : {in_turn, in_buckets, all_reduced}) {
    expect_same_bits(train_on_threads(two_hosts(), options, training), expected, "a knob");
  }
}

// One host: the two axes would add in another order, and one pass over the memory of all moves
// nothing twice.
TEST(HybridMesh, OnOneHostIsReducedInOneStage) {
  const TrainingOptions training{.steps = 2};
  const ThreadRanks one_host{.ranks = 4};
  for (const auto& dtypes : kGradientDtypes) {
    const auto hybrid = with_dtypes(hybrid_options(Strategy::hybrid_shard, 2), dtypes);
    const auto outcome = train_on_threads(one_host, hybrid, training);
    for (const auto strategy : {Strategy::full_shard, Strategy::no_shard}) {
      const auto options = with_dtypes(hybrid_options(strategy), dtypes);
      expect_same_bits(train_on_threads(one_host, options, training), outcome,
                       std::string(name_of(strategy)));
    }
    EXPECT_EQ(
        calls_in_group(records_of_backward(one_host, hybrid), Operation::all_reduce, "replicas"),
        0);
  }
}

TEST(HybridMesh, ThatIsNotMadeOfHostsIsReducedInOneStage) {
  const TrainingOptions training{.steps = 2};
  const ThreadRanks uneven{.ranks = 4, .backend = "gloo", .hosts = {0, 0, 0, 1}};
  const auto options = hybrid_options(Strategy::hybrid_shard, 2);
  expect_same_bits(train_on_threads(uneven, options, training),
                   train_on_threads(uneven, hybrid_options(Strategy::full_shard), training),
                   "uneven hosts");
  const auto records = records_of_backward(uneven, options);
  EXPECT_EQ(calls_in_group(records, Operation::all_reduce, "replicas"), 0);
  EXPECT_EQ(calls_in_group(records, Operation::reduce_scatter, "world"), 4);
}

TEST(HybridMesh, MovesUnitsInsideHostsAndOneShardBetweenThem) {
  auto options = hybrid_options(Strategy::hybrid_shard);
  options.reduce_dtype = at::kBFloat16;
  const auto records = records_of_backward(two_hosts(), options);
  std::vector<int64_t> inside, between;
  for (const auto& record : records) {
    if (record.operation == Operation::reduce_scatter) {
      EXPECT_EQ(record.group, "shards");
      inside.push_back(record.bytes);
    }
    if (record.operation == Operation::all_reduce && record.group == "replicas") {
      between.push_back(record.bytes);
    }
  }
  ASSERT_EQ(inside.size(), 4U);  // the root and three blocks
  ASSERT_EQ(between.size(), 4U);
  // bf16 inside; half of the elements as fp32 sums between: the same number of bytes.
  EXPECT_EQ(between, inside);
}

// One shard's sums beside the buffers that every sharding has.
TEST(HybridMesh, HoldsNoTemporaryOfAWholeUnit) {
  run_ranks(two_hosts(), [](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, hybrid_options(Strategy::hybrid_shard));
    const auto& units = engine::EngineAccess::of(sharded).units();
    int64_t shards = 0;
    for (const auto& unit : units) shards += unit->numel() / 2;
    const int64_t root = units[0]->numel(), block = units[1]->numel();
    const auto backward = [&](int micro) {
      model(make_batch(training, 0, micro, world.rank())).backward();
    };
    backward(0);
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 4 * shards);
    sharded.ledger().reset_peaks();
    backward(1);  // adds to what is there
    // Two blocks collect or are summed inside hosts, one block's sums go between them.
    const int64_t buffers = root + 2 * block, sums = 2 * block / 2;
    EXPECT_LE(sharded.ledger().peak(tiers::Purpose::gradients), 4 * (shards + buffers + sums));
    EXPECT_EQ(sharded.ledger().held(tiers::Purpose::gradients), 4 * shards);
  });
}

}  // namespace
}  // namespace fullshard::testing
