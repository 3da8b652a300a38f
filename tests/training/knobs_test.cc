// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's knobs with DeepSpeed's meaning: each has a counter that proves it, and none changes a
// bit of the result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fullshard/engine/engine_access.h"
#include "fullshard/optim/adamw.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

struct Counted {
  Outcome outcome;
  ShardCounters counters;
  OperationTotals all_gather, reduce_scatter, all_reduce, broadcast;
  std::vector<std::string> piece_names;
  int64_t unit_numel = 0;  // of a block
  int64_t held_parameters = 0;
};

constexpr TrainingOptions kThreeSteps{.steps = 3};

// Runs on two ranks; `options` start from stage 3 with private copies, so that bytes move.
Counted run_with(const ShardOptions& options, const ThreadRanks& ranks = {.ranks = 2}) {
  Counted counted;
  run_ranks(ranks, [&](const World& world) {
    auto model = make_model(kThreeSteps);
    auto sharded = shard(model, world, options);
    AdamW optimizer(sharded, {.lr = 1e-2});
    Outcome outcome;
    world.recorder().reset_totals();
    for (int step = 0; step < kThreeSteps.steps; ++step) {
      auto loss = model(make_batch(kThreeSteps, step, 0, world.rank()));
      outcome.losses.push_back(loss.item<double>());
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    if (world.rank() != 0) return;
    counted.outcome = std::move(outcome);
    counted.counters = sharded.counters();
    counted.all_gather = world.recorder().totals(Operation::all_gather);
    counted.reduce_scatter = world.recorder().totals(Operation::reduce_scatter);
    counted.all_reduce = world.recorder().totals(Operation::all_reduce);
    counted.broadcast = world.recorder().totals(Operation::broadcast);
    for (const auto& piece : sharded.pieces()) counted.piece_names.push_back(piece.name);
    counted.unit_numel = engine::EngineAccess::of(sharded).units()[1]->numel();
    counted.held_parameters = sharded.ledger().held(tiers::Purpose::parameters);
  });
  return counted;
}

ShardOptions stage(int number) {
  ShardOptions options;
  options.sharding.zero_stage = number;
  options.share_host_copy = false;
  return options;
}

void expect_same_losses(const Counted& counted) {
  static const auto expected = run_with(stage(3)).outcome.losses;
  EXPECT_EQ(counted.outcome.losses, expected);
}

TEST(Knobs, OverlapOffLeavesNothingUnderComputation) {
  auto options = stage(3);
  options.schedule.forward_prefetch = true;
  const auto on = run_with(options);
  EXPECT_GT(on.counters.overlapped, 0);
  options.schedule.overlap_comm = false;
  const auto off = run_with(options);
  EXPECT_EQ(off.counters.overlapped, 0);
  EXPECT_EQ(off.counters.prefetches, 0);
  expect_same_losses(on);
  expect_same_losses(off);
}

TEST(Knobs, ReduceScatterOffAllReduces) {
  auto options = stage(2);
  options.traffic.reduce_scatter = false;
  const auto counted = run_with(options);
  EXPECT_EQ(counted.reduce_scatter.calls, 0);
  EXPECT_EQ(counted.all_reduce.calls, 3 * 4);
  expect_same_losses(counted);
}

TEST(Knobs, ReduceScatterOffAddsMicroBatchesUpToo) {
  const TrainingOptions training{.steps = 2, .micro_batches = 3};
  for (const int number : {0, 2, 3}) {
    auto options = stage(number);
    const auto scattered = train_on_threads({.ranks = 2}, options, training);
    options.traffic.reduce_scatter = false;
    const auto reduced = train_on_threads({.ranks = 2}, options, training);
    expect_same_bits(reduced, scattered, fmt::format("stage {}", number));
  }
}

TEST(Knobs, AllgatherPartitionsOffBroadcasts) {
  for (const int number : {1, 3}) {
    auto options = stage(number);
    options.traffic.allgather_partitions = false;
    const auto counted = run_with(options);
    EXPECT_EQ(counted.all_gather.calls, 0);
    EXPECT_GT(counted.broadcast.calls, 0);
    expect_same_losses(counted);
  }
}

TEST(Knobs, BucketSizesBoundTheLargestMessage) {
  auto options = stage(3);
  options.traffic.allgather_bucket_size = 100;
  options.traffic.reduce_bucket_size = 60;
  const auto counted = run_with(options);
  EXPECT_EQ(counted.all_gather.largest, 100 * 4);
  EXPECT_EQ(counted.reduce_scatter.largest, 60 * 4);
  expect_same_losses(counted);
}

TEST(Knobs, ContiguousGradientsOffParksThemUntilTheUnitIsReduced) {
  auto options = stage(2);
  EXPECT_EQ(run_with(options).counters.parked_gradients, 0);
  options.contiguous_gradients = false;
  const auto counted = run_with(options);
  EXPECT_GT(counted.counters.parked_gradients, 0);
  EXPECT_EQ(counted.counters.gradient_copies, counted.counters.parked_gradients);
  expect_same_losses(counted);
}

TEST(Knobs, RoundRobinSendsNeighboursToDifferentRanks) {
  auto options = stage(2);
  const auto in_order = run_with(options);
  options.round_robin_gradients = true;
  const auto round_robin = run_with(options);
  const auto first = [](const Counted& counted) {
    return std::vector<std::string>(counted.piece_names.begin(), counted.piece_names.begin() + 2);
  };
  EXPECT_THAT(first(in_order), ::testing::ElementsAre("embedding.weight", "block0.norm.weight"));
  // The root's three tensors are laid 0, 2, 1: rank 0 keeps the embedding only, then block 0's
  // tensors 0, 2, 4, ….
  EXPECT_NE(round_robin.piece_names, in_order.piece_names);
  EXPECT_EQ(round_robin.piece_names[2], "block0.qkv.weight");
  expect_same_losses(round_robin);
}

TEST(Knobs, SubGroupSizeBoundsWhatIsUpdatedAtOnce) {
  auto options = stage(3);
  options.sub_group_size = 17;
  const auto counted = run_with(options);
  EXPECT_EQ(counted.counters.largest_update, 17);
  expect_same_losses(counted);
}

TEST(Knobs, PrefetchBucketBoundsWhatIsFetchedAhead) {
  auto options = stage(3);
  options.schedule.forward_prefetch = true;
  options.schedule.max_gathers_in_flight = 8;
  const auto plain = run_with(options);
  options.schedule.prefetch_bucket_size = 2 * plain.unit_numel;
  const auto two = run_with(options);
  options.schedule.prefetch_bucket_size = plain.unit_numel - 1;
  const auto none = run_with(options);
  EXPECT_EQ(plain.counters.peak_ahead_numel, plain.unit_numel);
  EXPECT_EQ(two.counters.peak_ahead_numel, 2 * plain.unit_numel);
  EXPECT_LT(none.counters.peak_ahead_numel, plain.unit_numel);
  expect_same_losses(two);
}

// A gather over a network runs beside computation, one inside a host does not.
TEST(Knobs, OneUnitIsFetchedAheadBetweenHostsWhateverTheFileSays) {
  auto options = stage(3);
  options.schedule.forward_prefetch = false;
  options.schedule.backward_prefetch = BackwardPrefetch::none;
  const auto on_one_host = run_with(options, {.ranks = 2, .backend = "gloo"});
  const auto on_two = run_with(options, {.ranks = 2, .backend = "gloo", .ranks_per_host = 1});
  EXPECT_EQ(on_one_host.counters.prefetches, 0);
  // Three blocks behind the root: in every backward, and in the forwards after the first, which
  // shows their order.
  EXPECT_EQ(on_two.counters.prefetches, 3 * 3 + 2 * 3);
  EXPECT_EQ(on_two.counters.peak_ahead_numel, on_two.unit_numel);
  expect_same_losses(on_one_host);
  expect_same_losses(on_two);
}

TEST(Knobs, SmallParametersAreNeverReleased) {
  auto options = stage(3);
  const auto without = run_with(options);
  EXPECT_EQ(without.held_parameters, 0);
  options.param_persistence_threshold = 7;  // norms and biases of width 6
  const auto counted = run_with(options);
  // Root: a norm of 2 tensors; block: norm 2, out.bias, down.bias; each aligned to 4 elements and
  // padded to 8.
  EXPECT_EQ(counted.held_parameters, 4 * (16 + 3 * 32));
  expect_same_losses(counted);
}

TEST(Knobs, MaxLiveParametersBoundsWhatIsGathered) {
  auto options = stage(3);
  options.schedule.forward_prefetch = true;
  const auto without = run_with(options);
  options.schedule.max_live_parameters = without.counters.peak_live_numel - 1;
  const auto counted = run_with(options);
  EXPECT_EQ(counted.counters.peak_live_numel,
            without.counters.peak_live_numel - without.unit_numel);
  expect_same_losses(counted);
}

TEST(Knobs, MaxReuseDistanceKeepsWhatIsUsedAgainSoon) {
  auto options = stage(3);
  options.schedule.backward_prefetch = BackwardPrefetch::none;
  const auto without = run_with(options);
  options.schedule.max_reuse_distance = 1'000'000'000;
  const auto counted = run_with(options);
  // From the second step on nothing is released between forward and backward.
  EXPECT_EQ(without.all_gather.calls, 3 * 7);
  EXPECT_EQ(counted.all_gather.calls, 7 + 2 * 4);
  expect_same_losses(counted);
}

}  // namespace
}  // namespace fullshard::testing
