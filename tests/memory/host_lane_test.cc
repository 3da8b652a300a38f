// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_lane.h"

#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fullshard/base/error.h"
#include "fullshard/memory/leaving.h"
#include "tests/errors.h"

namespace fullshard::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(HostLane, OfACpuDoesItsWorkWhenSomebodyWaits) {
  std::vector<std::string> done;
  HostLane lane(at::kCPU);
  const auto first = lane.run([&done] {
    done.emplace_back("first");
    return LaneMark();
  });
  lane.run([&done] {
    done.emplace_back("second");
    return LaneMark();
  });
  EXPECT_THAT(done, IsEmpty());
  first.hold_caller();
  EXPECT_THAT(done, ElementsAre("first"));
  lane.mark().wait();
  EXPECT_THAT(done, ElementsAre("first", "second"));
}

TEST(HostLane, IsPassedOnlyBehindWhatItsWorkAsksFor) {
  std::vector<std::string> done;
  Lane copies(at::kCPU);
  HostLane lane(at::kCPU);
  const auto mark = lane.run([&] {
    copies.run([&done] { done.emplace_back("copy"); });
    return copies.mark();
  });
  mark.wait();
  EXPECT_THAT(done, ElementsAre("copy"));
}

TEST(LaneMark, ThatIsPromisedWaitsForItsMakerAndThrowsWhatThatThrew) {
  std::promise<LaneMark> promise;
  const auto mark = LaneMark::promised(promise.get_future().share());
  bool ran = false;
  Lane lane(at::kCPU);
  lane.run([&ran] { ran = true; });
  promise.set_value(lane.mark());
  mark.hold_caller();
  EXPECT_TRUE(ran);

  std::promise<LaneMark> broken;
  broken.set_exception(std::make_exception_ptr(Error("the thread failed")));
  const auto failed = LaneMark::promised(broken.get_future().share());
  EXPECT_EQ(testing::message_of([&] { failed.wait(); }), "the thread failed");
  EXPECT_EQ(testing::message_of([&] { lane.wait_for(failed); }), "the thread failed");
}

// What is held, oldest first: a mark that was waited for has run.
TEST(Leaving, HoldsNoMoreThanItMayButAlwaysTheNewest) {
  std::vector<int> copied;
  Lane lane(at::kCPU);
  Leaving leaving(250);
  const auto leave = [&](int which, int64_t bytes) {
    lane.run([&copied, which] { copied.push_back(which); });
    leaving.hold(lane.mark(), {at::empty({bytes}, at::kByte)});
  };
  leave(0, 100);
  leave(1, 100);
  EXPECT_THAT(copied, IsEmpty());
  EXPECT_EQ(leaving.bytes(), 200);
  leave(2, 100);
  EXPECT_THAT(copied, ElementsAre(0));
  EXPECT_EQ(leaving.bytes(), 200);
  leave(3, 1000);
  EXPECT_THAT(copied, ElementsAre(0, 1, 2));
  EXPECT_EQ(leaving.bytes(), 1000);
  leaving.release_all();
  EXPECT_THAT(copied, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(leaving.bytes(), 0);
}

}  // namespace
}  // namespace fullshard::memory
