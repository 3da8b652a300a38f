// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/signals.h"

#include <gtest/gtest.h>

namespace fullshard::launch {
namespace {

TEST(Signals, AreReadAndNotTaken) {
  const Signals signals;
  EXPECT_EQ(signals.next(), std::nullopt);
  std::raise(SIGTERM);
  EXPECT_EQ(signals.next(), SIGTERM);
  EXPECT_EQ(signals.next(), std::nullopt);
}

// One more, while the program ends as it was asked to, would end it otherwise.
TEST(Signals, AfterOneThatAsksForTheEndMoreChangeNothing) {
  {
    const Signals signals;
    std::raise(SIGTERM);
    EXPECT_EQ(signals.next(), SIGTERM);
    std::raise(SIGTERM);
  }
  SUCCEED() << "the second has not ended this program";
}

TEST(SignalsDeathTest, TheFirstThatNobodyReadIsNotLost) {
  EXPECT_EXIT(
      {
        const Signals signals;
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace fullshard::launch
