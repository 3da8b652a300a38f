// SPDX-License-Identifier: Apache-2.0
// Whole runs whose optimizer states pass through windows, beside the same runs without.
#include <gtest/gtest.h>

#include "tests/training/expectations.h"

namespace fullshard::testing {
namespace {

StateOffload through_small_windows() {
  return {.optimizer = tiers::Tier::host,
          .window_bytes = 8 * 64,
          .num_windows = 3,
          .streams_on_cpu = true};
}

void expect_same_with_offload(int ranks, ShardOptions options, const TrainingOptions& training,
                              const std::string& what) {
  const auto resident = train_on_threads({.ranks = ranks}, options, training);
  options.offload = through_small_windows();
  expect_same_bits(train_on_threads({.ranks = ranks}, options, training), resident, what);
}

TEST(StreamedTraining, GivesTheSameBitsInEveryStrategy) {
  for (const int ranks : {1, 2, 3}) {
    for (const int stage : {0, 1, 2, 3}) {
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

}  // namespace
}  // namespace fullshard::testing
