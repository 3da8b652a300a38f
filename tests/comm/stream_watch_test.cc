// SPDX-License-Identifier: Apache-2.0
// The watch over calls on streams, whose ends are said here by the test and not by a GPU.
#include "fullshard/comm/gpu/stream_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>

#include "expect_error.h"
#include "fullshard/base/error.h"

namespace fullshard::comm {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Call kWatchedGather{
    .sequence = 7, .operation = Operation::all_gather, .group = "shards", .unit = "blocks.2"};

// What peers say is said by the test.
class ToldPeers : public LinkPeers {
 public:
  void note(const LinkCall& call) override { noted_ = call.number; }
  void look(const LinkCall&, milliseconds) override {
    if (is_gone_) throw Error("rank 1 died");
  }
  void look_for_gone(const LinkCall& call) override { look(call, {}); }

  std::atomic<uint64_t> noted_ = 0;
  std::atomic<bool> is_gone_ = false;
};

// A link that is let go of once.
struct TestLink {
  explicit TestLink(std::shared_ptr<StreamWatch> watch, std::function<std::string()> fault = {})
      : link(std::move(watch),
             {.name = "test", .find_fault = std::move(fault), .peers = peers, .let_go = [this] {
                let_go();
              }}) {}

  void let_go() {
    ++times;
    gone.set_value();
  }
  void wait() { gone.get_future().wait(); }

  std::shared_ptr<ToldPeers> peers = std::make_shared<ToldPeers>();
  std::promise<void> gone;
  std::atomic<int> times = 0;
  WatchedLink link;
};

bool never() { return false; }

TEST(StreamWatch, TellsThePeersOfEveryCallBeforeItIsIssued) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  TestLink link(watch);
  EXPECT_EQ(link.link.begin(kWatchedGather).number, 1u);
  EXPECT_EQ(link.peers->noted_, 1u);
  auto second = link.link.begin(kWatchedGather);
  EXPECT_EQ(second.number, 2u);
  EXPECT_EQ(link.peers->noted_, 2u);
  link.link.end(std::move(second), [] { return true; });
  watch->check_sound();
}

TEST(StreamWatch, LetsGoOfAllLinksTogetherWhenOneFails) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  TestLink broken(watch, [] { return std::string("failed: remote error"); });
  TestLink idle(watch), busy(watch);
  busy.link.end(busy.link.begin(kWatchedGather), never);
  broken.link.end(broken.link.begin(kWatchedGather), never);
  broken.wait();
  idle.wait();
  busy.wait();
  const std::string text =
      "test: all_gather of blocks.2 (group shards, sequence 7) failed: remote error";
  EXPECT_EQ(error_of([&] { watch->check_sound(); }), text);
  // No call is issued any more, whichever link it is for.
  EXPECT_EQ(error_of([&] { idle.link.begin(kWatchedGather); }), text);
  EXPECT_EQ(idle.peers->noted_, 0u);
}

// Letting go of one link may have to wait until another's kernels have ended.
TEST(StreamWatch, LetsGoOfLinksSideBySide) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  std::promise<void> first_began, second_began;
  auto first_seen = first_began.get_future().share(),
       second_seen = second_began.get_future().share();
  WatchedLink first(watch, {.name = "first", .let_go = [&] {
                              first_began.set_value();
                              second_seen.wait();
                            }});
  WatchedLink second(watch, {.name = "second", .let_go = [&] {
                               second_began.set_value();
                               first_seen.wait();
                             }});
  watch->abandon("this rank has failed");
  EXPECT_FALSE(watch->is_sound());
}

TEST(StreamWatch, NamesTheRankThatIsGoneWhenTheLinkOnlySaysThatItFailed) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  TestLink link(watch, [] { return std::string("failed: remote error"); });
  link.peers->is_gone_ = true;
  link.link.end(link.link.begin(kWatchedGather), never);
  link.wait();
  EXPECT_EQ(error_of([&] { watch->check_sound(); }), "rank 1 died");
}

TEST(StreamWatch, AsksTheHostAboutACallThatDoesNotEnd) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  TestLink link(watch);
  link.link.end(link.link.begin(kWatchedGather), [] { return true; });
  link.link.end(link.link.begin(kWatchedGather), never);
  link.peers->is_gone_ = true;
  link.wait();
  EXPECT_EQ(error_of([&] { watch->check_sound(); }), "rank 1 died");
}

// std::terminate would end the process before anybody has heard of it.
TEST(StreamWatch, TellsAnErrorOfTheDevice) {
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{});
  TestLink link(watch);
  link.link.end(link.link.begin(kWatchedGather), []() -> bool {
    throw std::runtime_error("CUDA error: an illegal memory access\nbacktrace");
  });
  link.wait();
  EXPECT_EQ(error_of([&] { watch->check_sound(); }),
            "test: the device failed: CUDA error: an illegal memory access");
}

// Whoever waits for the call goes on when it is let go, and must find the error then.
TEST(StreamWatch, IsUnsoundAndHasToldTheOthersBeforeItLetsGo) {
  std::string told;
  const auto watch = std::make_shared<StreamWatch>(
      StreamWatch::Options{.on_failure = [&](const std::string& why) { told = why; }});
  bool was_sound = true;
  std::string told_before;
  std::promise<void> gone;
  WatchedLink link(watch, {.name = "test",
                           .find_fault = [] { return std::string("failed"); },
                           .let_go =
                               [&] {
                                 was_sound = watch->is_sound();
                                 told_before = told;
                                 gone.set_value();
                               }});
  link.end(link.begin(kWatchedGather), never);
  gone.get_future().wait();
  EXPECT_FALSE(was_sound);
  EXPECT_THAT(told_before, HasSubstr("(group shards, sequence 7) failed"));
}

// The first call to CUDA of a thread that has not chosen its GPU makes a context on GPU 0.
TEST(StreamWatch, ChoosesTheDeviceOfEveryThreadBeforeItIsAskedAnything) {
  std::mutex mutex;
  std::set<std::thread::id> entered;
  bool all_had = true;
  const auto see = [&] {
    const std::lock_guard lock(mutex);
    all_had = all_had && entered.contains(std::this_thread::get_id());
  };
  const auto watch = std::make_shared<StreamWatch>(StreamWatch::Options{.enter_thread = [&] {
    const std::lock_guard lock(mutex);
    entered.insert(std::this_thread::get_id());
  }});
  std::promise<void> gone;
  WatchedLink link(watch, {.name = "test",
                           .find_fault =
                               [&] {
                                 see();
                                 return std::string("failed");
                               },
                           .let_go =
                               [&] {
                                 see();
                                 gone.set_value();
                               }});
  link.end(link.begin(kWatchedGather), [&] {
    see();
    return false;
  });
  gone.get_future().wait();
  EXPECT_TRUE(all_had);
}

TEST(StreamWatch, IsGivenUpOnceOnly) {
  int told = 0;
  const auto watch = std::make_shared<StreamWatch>(
      StreamWatch::Options{.on_failure = [&](const std::string&) { ++told; }});
  TestLink link(watch);
  watch->abandon("first");
  watch->abandon("second");
  EXPECT_EQ(error_of([&] { watch->check_sound(); }), "first");
  EXPECT_EQ(told, 1);
  EXPECT_EQ(link.times, 1);
}

}  // namespace
}  // namespace fullshard::comm
