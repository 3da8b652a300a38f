// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/errors.h"

namespace fullshard::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Trace {
  std::vector<std::string> done;
  auto entry(const std::string& name) {
    return [this, name] { done.push_back(name); };
  }
};

TEST(CpuLane, RunsNothingBeforeSomebodyWaits) {
  Trace trace;
  Lane lane(at::kCPU);
  lane.run(trace.entry("first"));
  const auto after_first = lane.mark();
  lane.run(trace.entry("second"));
  EXPECT_THAT(trace.done, IsEmpty());
  after_first.hold_caller();
  EXPECT_THAT(trace.done, ElementsAre("first"));
  after_first.wait();
  EXPECT_THAT(trace.done, ElementsAre("first"));
  lane.mark().wait();
  EXPECT_THAT(trace.done, ElementsAre("first", "second"));
}

TEST(CpuLane, RunsOfOtherLanesWhatItWaitsForAndNoMore) {
  Trace trace;
  Lane copies(at::kCPU), updates(at::kCPU);
  copies.run(trace.entry("in 0"));
  updates.wait_for(copies.mark());
  copies.run(trace.entry("in 1"));
  updates.run(trace.entry("update 0"));
  const auto updated = updates.mark();
  copies.wait_for(updated);
  copies.run(trace.entry("in 2"));
  updated.wait();
  EXPECT_THAT(trace.done, ElementsAre("in 0", "update 0"));
  copies.mark().wait();
  EXPECT_THAT(trace.done, ElementsAre("in 0", "update 0", "in 1", "in 2"));
}

TEST(CpuLane, ThatEndedBeforeItsWorkSaysSo) {
  LaneMark done, left;
  {
    Trace trace;
    Lane lane(at::kCPU);
    lane.run(trace.entry("done"));
    done = lane.mark();
    done.wait();
    lane.run(trace.entry("left"));
    left = lane.mark();
  }
  done.wait();
  EXPECT_THAT(testing::message_of([&] { left.wait(); }),
              ::testing::HasSubstr("was still to be done when its owner was destroyed"));
}

TEST(LaneMark, ThatIsEmptyIsPast) {
  LaneMark().wait();
  LaneMark().hold_caller();
  LaneMark::of_caller(at::kCPU).wait();
  Lane lane(at::kCPU);
  lane.wait_for(LaneMark());
  lane.mark().wait();
}

}  // namespace
}  // namespace fullshard::memory
