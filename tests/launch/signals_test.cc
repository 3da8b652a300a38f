// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/signals.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace fullshard::launch {
namespace {

TEST(Signals, AreReadAndNotTaken) {
  const Signals signals;
  EXPECT_EQ(signals.next(), std::nullopt);
  std::raise(SIGTERM);
  EXPECT_EQ(signals.next(), SIGTERM);
  EXPECT_EQ(signals.next(), std::nullopt);
}

// Another signal, while the program ends as requested, would kill it.
TEST(SignalsDeathTest, AfterOneThatAsksForTheEndMoreChangeNothing) {
  constexpr int kOwnStatus = 7;
  EXPECT_EXIT(
      {
        {
          const Signals signals;
          std::raise(SIGTERM);
          if (signals.next() != SIGTERM) std::_Exit(1);
          std::raise(SIGTERM);
        }
        std::_Exit(kOwnStatus);
      },
      ::testing::ExitedWithCode(kOwnStatus), "");
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
