// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/late_vote.h"

#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"

namespace fullshard::engine {
namespace {

using Late = std::vector<bool>;

TEST(LateVote, NamesTheUnitsOfAllRanks) {
  for (const std::string backend : {"shm", "gloo"}) {
    for (const int ranks : {1, 2, 3}) {
      run_ranks({.ranks = ranks, .backend = backend}, [&](const World& world) {
        LateVote vote(world.communicator());
        Late mine(4, false);
        mine[world.rank()] = true;
        Late expected(4, false);
        for (int rank = 0; rank < ranks; ++rank) expected[rank] = true;
        EXPECT_EQ(vote.ask(mine), expected);
      });
    }
  }
}

TEST(LateVote, RoundsDoNotMix) {
  run_ranks({.ranks = 3}, [](const World& world) {
    LateVote vote(world.communicator());
    for (int round = 0; round < 200; ++round) {
      const bool late = round % 5 == world.rank();
      const bool any = round % 5 < 3;
      EXPECT_EQ(vote.ask({late}), Late{any}) << round;
    }
  });
}

TEST(LateVote, SendsNothingWhereRanksShareMemoryAndNobodyIsLate) {
  run_ranks({.ranks = 2}, [](const World& world) {
    LateVote vote(world.communicator());
    world.recorder().reset_totals();
    EXPECT_EQ(vote.ask({false, false}), Late({false, false}));
    EXPECT_EQ(world.recorder().totals(Operation::all_reduce).calls, 0);
    EXPECT_EQ(vote.ask({false, world.rank() == 1}), Late({false, true}));
    EXPECT_EQ(world.recorder().totals(Operation::all_reduce).calls, 1);
  });
}

}  // namespace
}  // namespace fullshard::engine
