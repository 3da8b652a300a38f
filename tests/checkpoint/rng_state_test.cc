// SPDX-License-Identifier: Apache-2.0
#include "fullshard/checkpoint/rng_state.h"

#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/checkpoint/saved_state.h"
#include "tests/training/rank_processes.h"

namespace fullshard::testing {
namespace {

// Ranks that are threads share one generator, so these are processes.
TEST(RngState, EveryRankGetsItsOwnBack) {
  const CheckpointsFolder folder;
  const auto ranks =
      run_rank_program(3, {.name = "checkpoint_random_rank", .arguments = {folder / "one"}});
  std::set<int64_t> numbers;
  for (const auto& rank : ranks) {
    ASSERT_EQ(rank.exit_status, 0) << rank.errors;
    std::istringstream text(rank.output);
    int64_t after_save = -1, after_load = -2;
    text >> after_save >> after_load;
    EXPECT_EQ(after_load, after_save);
    numbers.insert(after_save);
  }
  EXPECT_EQ(numbers.size(), 3u);
}

}  // namespace
}  // namespace fullshard::testing
