// SPDX-License-Identifier: Apache-2.0
#include "fullshard/engine/gradients/reduce_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace fullshard::engine {
namespace {

// Writes "+2" when unit 2 is issued and "-2" when it is finished.
struct Log {
  ReduceQueue queue{{[this](int unit) { text += "+" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "-" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "~" + std::to_string(unit) + " "; }}};
  std::string text;
};

TEST(ReduceQueue, FinishesTheOlderBeforeItIssuesTheNext) {
  Log log;
  log.queue.limit(1);
  log.queue.issue(3);
  log.queue.advance();
  log.queue.issue(2);
  EXPECT_EQ(log.text, "+3 ~3 -3 +2 ");
  log.queue.flush();
  EXPECT_EQ(log.text, "+3 ~3 -3 +2 -2 ");
  EXPECT_EQ(log.queue.in_flight(), 0);
}

TEST(ReduceQueue, WaitsAtOnceWithoutOverlap) {
  Log log;
  log.queue.limit(0);
  log.queue.issue(1);
  EXPECT_EQ(log.text, "+1 -1 ");
}

}  // namespace
}  // namespace fullshard::engine
