#include "fullshard/shard/reduce_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace fullshard {
namespace {

// Writes "+2" when unit 2 is issued and "-2" when it is finished.
struct Log {
  ReduceQueue queue{{[this](int unit) { text += "+" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "-" + std::to_string(unit) + " "; },
                     [this](int unit) { text += "~" + std::to_string(unit) + " "; }}};
  std::string text;
};

TEST(ReduceQueue, IssuesInTheAgreedOrderWhateverBecomesReadyFirst) {
  Log log;
  log.queue.open({3, 2, 1}, 4, 1);
  log.queue.mark_ready(2);
  EXPECT_EQ(log.text, "");
  log.queue.mark_ready(3);
  EXPECT_EQ(log.text, "+3 -3 +2 ");
  log.queue.mark_ready(1);
  log.queue.flush();
  EXPECT_EQ(log.text, "+3 -3 +2 -2 +1 -1 ");
}

TEST(ReduceQueue, WaitsAtOnceWithoutOverlap) {
  Log log;
  log.queue.open({1, 0}, 2, 0);
  log.queue.mark_ready(1);
  EXPECT_EQ(log.text, "+1 -1 ");
}

TEST(ReduceQueue, FlushIssuesWhatNeverBecameReady) {
  Log log;
  log.queue.open({2, 1, 0}, 3, 1);
  log.queue.mark_ready(0);
  log.queue.flush();
  EXPECT_EQ(log.text, "+2 -2 +1 -1 +0 -0 ");
}

TEST(ReduceQueue, AbandonFinishesWhatIsInFlightAndForgetsTheRest) {
  Log log;
  log.queue.open({1, 0}, 2, 1);
  log.queue.mark_ready(1);
  log.queue.abandon();
  log.queue.flush();
  EXPECT_EQ(log.text, "+1 -1 ");
}

}  // namespace
}  // namespace fullshard
