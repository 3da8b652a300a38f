// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/flops_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FlopsProfile two_blocks() {
  return {.step = 3,
          .world_size = 2,
          .micro_batch = 4,
          .accumulation = 2,
          .units = {{"", "Model", 10, 1e9, 2e9},
                    {"layers.0", "Block", 1000, 4e9, 8e9},
                    {"layers.1", "Block", 1500, 5e9, 1e10}},
          .forward_s = 2,
          .backward_s = 4,
          .optimizer_s = 0.5,
          .step_s = 8};
}

TEST(FlopsTable, HasTheTotalsOfAMicroBatch) {
  const std::string table = flops_table(two_blocks(), {.is_enabled = true});
  EXPECT_THAT(table, HasSubstr("Flops profile at step 3"));
  const auto row = [&](const std::string& name, const std::string& value) {
    EXPECT_THAT(table, ::testing::ContainsRegex("\n" + name + ": +" + value + "\n")) << table;
  };
  row("params of model", "2.51 K");
  row("fwd flops", "10.00 G");
  row("bwd flops", "20.00 G");
  row("fwd latency", "1 s");
  row("bwd latency", "2 s");
  row("fwd FLOPS = fwd flops / fwd latency", "10.00 GFLOPS");
  row("bwd FLOPS = bwd flops / bwd latency", "10.00 GFLOPS");
  row("samples/second", "2.00");
}

TEST(FlopsTable, SaysThatTheBackwardRunsTheForwardAgain) {
  FlopsProfile profile = two_blocks();
  profile.recomputes = true;
  EXPECT_THAT(
      flops_table(profile, {}),
      ::testing::ContainsRegex("bwd flops, with the forward that is run again: +20.00 G\n"));
}

TEST(FlopsTable, ShowsTheLargestModulesOfEachDepth) {
  const std::string table = flops_table(two_blocks(), {.top_modules = 1, .is_detailed = false});
  EXPECT_THAT(table, HasSubstr("depth 0:\n    params    - Model 2.51 K\n"
                               "    fwd flops - Model 10.00 G\n"
                               "depth 1:\n    params    - layers 2.5 K\n"
                               "    fwd flops - layers 9.00 G\n"
                               "depth 2:\n    params    - layers.1 1.5 K\n"
                               "    fwd flops - layers.1 5.00 G\n"));
  EXPECT_THAT(table, Not(HasSubstr("layers.0")));
  const std::string shallow = flops_table(two_blocks(), {.module_depth = 0, .is_detailed = false});
  EXPECT_THAT(shallow, HasSubstr("depth 0:"));
  EXPECT_THAT(shallow, Not(HasSubstr("depth 1:")));
  EXPECT_THAT(flops_table(two_blocks(), {.top_modules = 2, .is_detailed = false}),
              HasSubstr("layers.1 1.5 K, layers.0 1 K"));
}

TEST(FlopsTable, HasARowForEveryUnitWhereItIsDetailed) {
  const std::string table = flops_table(two_blocks(), {});
  EXPECT_THAT(
      table, ::testing::ContainsRegex("layers.0 \\(Block\\) +1 K +39.8% +4.00 G +40.0% +8.00 G\n"));
}

}  // namespace
}  // namespace fullshard::train
