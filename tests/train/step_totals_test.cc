// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/step_totals.h"

#include <gtest/gtest.h>

#include "fullshard/comm/world/world.h"

namespace fullshard::testing {
namespace {

TEST(StepTotals, AreSumsAndLargestValuesInOneMessage) {
  run_ranks({.ranks = 3}, [](const World& world) {
    const double own = world.rank() == 1 ? -2.5 : 1e17;
    const train::StepTotals totals(world.communicator(), {own, static_cast<double>(world.rank())},
                                   "test");
    EXPECT_EQ(totals.sum(0), (1e17 - 2.5) + 1e17);
    EXPECT_EQ(totals.largest(0), 1e17);
    EXPECT_EQ(totals.sum(1), 3);
    EXPECT_EQ(totals.largest(1), 2);
    EXPECT_EQ(world.recorder().totals(Operation::all_gather).calls, 1);
    EXPECT_EQ(world.recorder().totals(Operation::all_reduce).calls, 0);
  });
}

}  // namespace
}  // namespace fullshard::testing
