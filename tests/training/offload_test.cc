// SPDX-License-Identifier: Apache-2.0
// Whole runs whose optimizer states pass through windows, beside the same runs without.
#include <gtest/gtest.h>

#include "tests/files.h"
#include "tests/offload_options.h"
#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

tiers::TierOptions through_small_windows() { return states_in_host_memory(8 * 64, 3); }

void expect_same_with_offload(int ranks, ShardOptions options, const TrainingOptions& training,
                              const std::string& what) {
  const auto resident = train_on_threads({.ranks = ranks}, options, training);
  options.offload = through_small_windows();
  expect_same_bits(train_on_threads({.ranks = ranks}, options, training), resident, what);
}

TEST(StreamedTraining, GivesTheSameBitsInEveryStrategy) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {1, 2, 3}) {
      ShardOptions options;
      options.sharding.zero_stage = stage;
      expect_same_with_offload(ranks, options, {.steps = 4},
                               "stage " + std::to_string(stage) + " on " + std::to_string(ranks));
    }
  }
}

TEST(StreamedTraining, GivesTheSameBitsWithRecomputationAndAccumulation) {
  for (const int ranks : {1, 2}) {
    for (const bool no_sync : {false, true}) {
      expect_same_with_offload(
          ranks, {.param_dtype = at::kBFloat16},
          {.steps = 4, .micro_batches = 3, .recompute = true, .no_sync = no_sync},
          no_sync ? "reduced once" : "reduced each time");
    }
  }
}

void expect_same_everywhere(int ranks, ShardOptions options, const TrainingOptions& training,
                            const std::string& what) {
  const TemporaryFolder folder;
  const auto resident = train_on_threads({.ranks = ranks}, options, training);
  for (const auto& [name, offload] : residences(folder.path())) {
    SCOPED_TRACE(name);
    options.offload = offload;
    expect_same_bits(train_on_threads({.ranks = ranks}, options, training), resident,
                     name + ", " + what);
  }
}

TEST(Residences, GiveTheSameBitsOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_same_everywhere(ranks, {}, {.steps = 4}, std::to_string(ranks) + " ranks");
  }
}

TEST(Residences, GiveTheSameBitsInSixteenBits) {
  for (const int ranks : {1, 2}) {
    for (const bool halves : {false, true}) {
      expect_same_everywhere(ranks, {.param_dtype = at::kBFloat16, .master_in_halves = halves},
                             {.steps = 4}, halves ? "in halves" : "whole");
    }
  }
}

TEST(Residences, GiveTheSameBitsWithRecomputationAndAccumulation) {
  for (const int ranks : {1, 2}) {
    for (const bool no_sync : {false, true}) {
      expect_same_everywhere(
          ranks, {.param_dtype = at::kBFloat16},
          {.steps = 3, .micro_batches = 3, .recompute = true, .no_sync = no_sync},
          no_sync ? "reduced once" : "reduced each time");
    }
  }
}

TEST(Residences, GiveTheSameBitsWhereGradientsStayWhereAutogradLeftThem) {
  for (const int ranks : {1, 2}) {
    expect_same_everywhere(ranks, {.share_host_copy = false, .contiguous_gradients = false},
                           {.steps = 3, .micro_batches = 2}, "not contiguous");
  }
}

}  // namespace
}  // namespace fullshard::testing
