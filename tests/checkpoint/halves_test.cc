// SPDX-License-Identifier: Apache-2.0
// Files know nothing of masters in halves.
#include <ATen/ops/equal.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "fullshard/checkpoint/checkpoint.h"
#include "fullshard/checkpoint/model_io.h"
#include "tests/checkpoint/saved_state.h"
#include "tests/files.h"
#include "tests/master_halves.h"

namespace fullshard::testing {
namespace {

ShardOptions options_of(int stage, bool in_halves) {
  auto options = halves_options(stage, in_halves);
  options.ignored_modules = "aside";
  return options;
}

void expect_same_values(const Values& found, const Values& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected) {
    EXPECT_TRUE(at::equal(found.at(name), values)) << name;
  }
}

// Saved whole and in halves, loaded whole and in halves: the same masters and the same files.
TEST(CheckpointOfHalves, HoldsTheBitsOfWholeMasters) {
  const CheckpointsFolder folder;
  for (const int stage : {1, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks({.ranks = 2}, [&](const World& world) {
      RankRun whole(world, options_of(stage, false), false);
      whole.train(0, 2);
      const auto expected = master_values(whole.sharded);
      save_checkpoint(folder / "whole", whole.sharded, whole.optimizer, {.step = 2});

      RankRun halves(world, options_of(stage, true), true);
      load_checkpoint(folder / "whole", halves.sharded, halves.optimizer);
      EXPECT_TRUE(are_in_halves(halves.sharded));
      expect_same_values(master_values(halves.sharded), expected);
      save_checkpoint(folder / "halves", halves.sharded, halves.optimizer, {.step = 2});
      EXPECT_TRUE(are_in_halves(halves.sharded));

      RankRun again(world, options_of(stage, false), true);
      load_checkpoint(folder / "halves", again.sharded, again.optimizer);
      expect_same_values(master_values(again.sharded), expected);
    });
    for (const int rank : {0, 1}) {
      const auto name = fmt::format("/weights-{:05}.bin", rank);
      EXPECT_EQ(read_file((folder / "halves") + name), read_file((folder / "whole") + name));
    }
  }
}

TEST(CheckpointOfHalves, ALoadThatIsRefusedLeavesThemAsTheyWere) {
  const CheckpointsFolder folder;
  run_ranks({.ranks = 2}, [&](const World& world) {
    RankRun run(world, options_of(3, true), false);
    const auto expected = master_values(run.sharded);
    EXPECT_THROW(load_checkpoint(folder / "none", run.sharded, run.optimizer), Error);
    EXPECT_TRUE(are_in_halves(run.sharded));
    expect_same_values(master_values(run.sharded), expected);
  });
}

TEST(CheckpointOfHalves, ExportsTheBitsOfWholeMasters) {
  const CheckpointsFolder folder;
  for (const char* name : {"whole", "halves"}) ASSERT_EQ(::mkdir((folder / name).c_str(), 0700), 0);
  run_ranks({.ranks = 2}, [&](const World& world) {
    for (const bool in_halves : {false, true}) {
      RankRun run(world, options_of(2, in_halves), false);
      save_weights(folder / (in_halves ? "halves" : "whole"), run.sharded);
    }
  });
  EXPECT_EQ(read_file((folder / "halves") + "/model.safetensors"),
            read_file((folder / "whole") + "/model.safetensors"));
}

}  // namespace
}  // namespace fullshard::testing
