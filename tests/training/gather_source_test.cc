// SPDX-License-Identifier: Apache-2.0
// Gathers send what rests: no copy of the shard is made first where it has the dtype already.
#include <gtest/gtest.h>

#include "fullshard/engine/engine_access.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

struct GatherRun {
  ShardCounters counters;
  int64_t shard_numel = 0;  // of all units, padding included
};

GatherRun gather_run(const std::string& backend, const ShardOptions& options) {
  GatherRun run;
  run_ranks({.ranks = 2, .backend = backend}, [&](const World& world) {
    const TrainingOptions training;
    auto model = make_model(training);
    auto sharded = shard(model, world, options);
    model(make_batch(training, 0, 0, world.rank())).backward();
    if (world.rank() != 0) return;
    run.counters = sharded.counters();
    for (const auto& unit : engine::EngineAccess::of(sharded).units())
      run.shard_numel += unit->numel() / 2;
  });
  return run;
}

ShardOptions gathered_privately(std::optional<at::ScalarType> dtype, bool in_halves) {
  ShardOptions options;
  options.param_dtype = dtype;
  options.master_in_halves = in_halves;
  options.share_host_copy = false;
  options.sharding.reshard_after_forward = false;  // every unit is gathered once
  return options;
}

TEST(GatherSource, IsTheRestingShardWhereItHasTheDtype) {
  for (const std::string backend : {"shm", "gloo"}) {
    const auto plain = gather_run(backend, gathered_privately({}, false));
    EXPECT_EQ(plain.counters.unshards, 4) << backend;
    EXPECT_EQ(plain.counters.copied_for_gathers, 0) << backend;
    const auto halves = gather_run(backend, gathered_privately(at::kBFloat16, true));
    EXPECT_EQ(halves.counters.unshards, 4) << backend;
    EXPECT_EQ(halves.counters.copied_for_gathers, 0) << backend;
  }
}

TEST(GatherSource, IsACastWhereMastersHaveAnotherDtype) {
  const auto cast = gather_run("shm", gathered_privately(at::kBFloat16, false));
  EXPECT_EQ(cast.counters.unshards, 4);
  EXPECT_EQ(cast.counters.copied_for_gathers, 2 * cast.shard_numel);
}

// Sent from where it rests, a shard arrives as it would have been copied.
TEST(GatherSource, ChangesNoBit) {
  const TrainingOptions training{.steps = 2};
  auto in_place = gathered_privately({}, false);
  auto one_copy = in_place;
  one_copy.share_host_copy = true;
  const auto expected = train_on_threads({.ranks = 3}, one_copy, training);
  expect_same_bits(train_on_threads({.ranks = 3}, in_place, training), expected, "shm");
  in_place.traffic.allgather_partitions = false;
  expect_same_bits(train_on_threads({.ranks = 3}, in_place, training), expected, "broadcasts");
  in_place.traffic = {.allgather_bucket_size = 64};
  expect_same_bits(train_on_threads({.ranks = 3, .backend = "gloo"}, in_place, training), expected,
                   "gloo in buckets");
}

}  // namespace
}  // namespace fullshard::testing
