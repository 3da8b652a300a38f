// SPDX-License-Identifier: Apache-2.0
#include "fullshard/tuning/ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace fullshard::tuning {
namespace {

using ::testing::ElementsAre;

// Those that are tried.
std::vector<std::string> tried(const LadderOptions& options) {
  std::vector<std::string> names;
  for (const Rung& rung : ladder(options)) {
    if (rung.passed_over.empty()) names.push_back(rung.title());
  }
  return names;
}

const Rung& named(const std::vector<Rung>& rungs, const std::string& name) {
  for (const Rung& rung : rungs) {
    if (rung.name == name) return rung;
  }
  ADD_FAILURE() << "no rung " << name;
  return rungs.front();
}

TEST(Ladder, OnSeveralGpusHasEveryRungInTheGuidesOrder) {
  EXPECT_THAT(tried({.ranks = 4, .on_gpus = true}),
              ElementsAre("batch 1", "recomputation", "ZeRO-1", "ZeRO-2",
                          "ZeRO-2 + optimizer offload", "ZeRO-3", "ZeRO-3 + parameter offload",
                          "ZeRO-3 + parameter and optimizer offload", "16 bit", "disk"));
}

TEST(Ladder, OnOneGpuHasNoStageWithoutOffload) {
  EXPECT_THAT(tried({.ranks = 1, .on_gpus = true}),
              ElementsAre("batch 1", "recomputation", "ZeRO-2 + optimizer offload",
                          "ZeRO-3 + parameter offload", "ZeRO-3 + parameter and optimizer offload",
                          "16 bit", "disk"));
}

TEST(Ladder, OnCpusHasNoOffloadToTheHost) {
  EXPECT_THAT(tried({.ranks = 2}), ElementsAre("batch 1", "recomputation", "ZeRO-1", "ZeRO-2",
                                               "ZeRO-3", "16 bit", "disk"));
  EXPECT_THAT(tried({.ranks = 1}), ElementsAre("batch 1", "recomputation", "16 bit", "disk"));
}

TEST(Ladder, NamesWhatItPassesOverAndWhy) {
  const auto rungs = ladder({.ranks = 1});
  EXPECT_EQ(rungs.size(), 10u);
  EXPECT_EQ(named(rungs, "ZeRO-1").passed_over, "a single rank has no other to share states with");
  EXPECT_EQ(named(rungs, "ZeRO-3 + parameter offload").passed_over,
            "on CPU ranks the host's memory is the device's: nothing would move");
}

TEST(Ladder, KeepsWhatTheRungsBelowChanged) {
  const auto rungs = ladder({.ranks = 2, .on_gpus = true});
  EXPECT_FALSE(rungs.front().recompute);
  EXPECT_TRUE(named(rungs, "ZeRO-1").recompute);
  EXPECT_EQ(named(rungs, "ZeRO-3").offloaded, Offloaded::nothing);
  const Rung small = named(rungs, "16 bit");
  EXPECT_EQ(small.stage, 3);
  EXPECT_EQ(small.offloaded, Offloaded::both);
  EXPECT_TRUE(small.sixteen_bit);
  const Rung disk = named(rungs, "disk");
  EXPECT_TRUE(disk.sixteen_bit && disk.recompute);
  EXPECT_EQ(disk.offloaded, Offloaded::to_disk);
  EXPECT_EQ(named(ladder({.ranks = 1}), "16 bit").stage, 0);
}

TEST(Ladder, LeavesWhatAFlagHasSettled) {
  EXPECT_THAT(tried({.ranks = 2, .on_gpus = true, .stage = 2}),
              ElementsAre("batch 1", "recomputation", "ZeRO-2 + optimizer offload", "16 bit"));
  EXPECT_EQ(ladder({.ranks = 2, .stage = 2}).front().stage, 2);
  EXPECT_THAT(tried({.ranks = 2,
                     .on_gpus = true,
                     .keeps_recompute = true,
                     .keeps_offload = true,
                     .keeps_precision = true,
                     .first_batch = 4}),
              ElementsAre("batch 4", "ZeRO-1, batch 4", "ZeRO-2, batch 4", "ZeRO-3, batch 4"));
  EXPECT_EQ(named(ladder({.is_sixteen_bit = true}), "16 bit").passed_over,
            "it already computes in 16 bit");
}

}  // namespace
}  // namespace fullshard::tuning
