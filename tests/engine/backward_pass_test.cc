// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/passes/backward_pass.h"

#include <gtest/gtest.h>

#include <string>

namespace fullshard::engine {
namespace {

using Mark = BackwardStep::Mark;

// R around A, B, C with one unit fetched ahead. Writes "~2" when unit 2 is passed over, "+2" when
// it is gathered ahead and "-2" when it ends.
struct Walk {
  Walk() {
    pass.open({{Mark::begin, 0, {3}},
               {Mark::begin, 3, {2}},
               {Mark::end, 3},
               {Mark::begin, 2, {1}},
               {Mark::end, 2},
               {Mark::begin, 1},
               {Mark::end, 1},
               {Mark::end, 0}},
              4);
  }

  std::string begin(int unit) {
    pass.begin(unit);
    text += "(" + std::to_string(unit) + " ";
    pass.gather_ahead(unit);
    return std::exchange(text, "");
  }
  std::string ready(int unit) {
    pass.mark_ready(unit);
    return std::exchange(text, "");
  }
  std::string finish() {
    pass.finish();
    return std::exchange(text, "");
  }

  std::string text;
  BackwardPass pass{{[this](int unit) { text += "~" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "+" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "-" + std::to_string(unit) + " "; }}};
};

TEST(BackwardPass, TakesStepsAsTheyAreReported) {
  Walk walk;
  EXPECT_EQ(walk.begin(0), "(0 +3 ");
  EXPECT_EQ(walk.begin(3), "(3 +2 ");
  EXPECT_EQ(walk.ready(3), "-3 ");
  EXPECT_EQ(walk.begin(2), "(2 +1 ");
  EXPECT_EQ(walk.ready(2), "-2 ");
  EXPECT_EQ(walk.begin(1), "(1 ");
  EXPECT_EQ(walk.ready(1), "-1 ");
  EXPECT_EQ(walk.finish(), "-0 ");
}

TEST(BackwardPass, AUnitWhoseGradientsDoNotAllComeEndsWhenALaterOneBegins) {
  Walk walk;
  walk.begin(0);
  walk.begin(3);
  EXPECT_EQ(walk.begin(2), "-3 (2 +1 ");
}

TEST(BackwardPass, AUnitThatIsNotUsedHasItsTurnAllTheSame) {
  Walk walk;
  walk.begin(0);
  walk.begin(3);
  walk.ready(3);
  EXPECT_EQ(walk.begin(1), "~2 +1 -2 (1 ");
}

TEST(BackwardPass, AUnitThatIsReadyEarlyWaitsForThoseBefore) {
  Walk walk;
  walk.begin(0);
  EXPECT_EQ(walk.ready(0), "");
  walk.begin(3);
  walk.ready(3);
  walk.begin(2);
  walk.begin(1);
  EXPECT_EQ(walk.ready(1), "-1 -0 ");
}

TEST(BackwardPass, FinishTakesWhatNothingReported) {
  Walk walk;
  EXPECT_EQ(walk.finish(), "~0 +3 ~3 +2 -3 ~2 +1 -2 ~1 -1 -0 ");
  EXPECT_EQ(walk.finish(), "");
}

TEST(BackwardPass, AUnitThatBeginsAgainAfterItsTurnTakesNoStep) {
  Walk walk;
  walk.begin(0);
  walk.begin(2);
  EXPECT_EQ(walk.begin(3), "(3 ");
}

TEST(BackwardPass, LeavesUnitsThatAreNotInThePlanAlone) {
  Walk walk;
  walk.pass.open({{Mark::begin, 2}, {Mark::end, 2}}, 4);
  EXPECT_EQ(walk.begin(1), "(1 ");
  EXPECT_EQ(walk.ready(1), "");
  EXPECT_EQ(walk.begin(2), "(2 ");
}

}  // namespace
}  // namespace fullshard::engine
