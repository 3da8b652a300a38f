// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/gloo/gloo_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>

#include "cut_off_store.h"

namespace fullshard::comm {
namespace {

using ::testing::StartsWith;

// A host that vanished closes no connection and leaves no mark.
TEST(GlooWatch, FindsARankBySilenceAtTheSecondLook) {
  const auto store = make_thread_store();
  const int ranks[] = {0, 1};
  GlooWatch own(store, 0, 2, std::make_shared<Recorder>(0));
  auto other = std::make_unique<GlooWatch>(store, 1, 2, std::make_shared<Recorder>(1));
  std::map<int, uint64_t> seen;
  EXPECT_FALSE(own.find_silent(ranks, seen));
  ASSERT_EQ(seen.count(1), 1u);
  const std::string before = *store->find("beat/1");
  while (*store->find("beat/1") == before) std::this_thread::yield();
  EXPECT_FALSE(own.find_silent(ranks, seen)) << "it lives";
  other.reset();
  std::optional<Missing> found = own.find_silent(ranks, seen);  // it may have beaten once more
  if (!found) found = own.find_silent(ranks, seen);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->rank, 1);
  Call call{.sequence = 7, .operation = Operation::barrier, .group = "world", .unit = "head"};
  EXPECT_THAT(found->message(0, call),
              StartsWith("rank 0: barrier of head (group world, sequence 7) waits for rank "
                         "1, which gives no sign of life"));
  EXPECT_EQ(own.missing()->rank, 1) << "all ranks are told";
  EXPECT_TRUE(own.is_host_lost());
}

const Call kWatchedCall{
    .sequence = 7, .operation = Operation::barrier, .group = "world", .unit = "head"};

// No call has to end for that.
TEST(GlooWatch, BlamesTheHolderOfAStoreThatCannotBeReached) {
  const StoreLines lines;
  const auto store = std::make_shared<CutOffStore>(make_thread_store(), lines);
  GlooWatch own(store, 3, 4, std::make_shared<Recorder>(3));
  EXPECT_FALSE(own.missing());
  EXPECT_FALSE(own.is_host_lost());
  lines.become(StoreLine::State::cut);
  while (!own.missing()) std::this_thread::yield();
  EXPECT_EQ(own.missing()->message(3, kWatchedCall),
            "rank 3: barrier of head (group world, sequence 7) waits for rank 0, which cannot be "
            "reached; it has made no call yet; the network to its host is cut or too slow");
  EXPECT_TRUE(own.is_host_lost());
  const int ranks[] = {2, 3};
  EXPECT_EQ(own.find_gone(ranks, {})->rank, 0);
  EXPECT_EQ(own.find_late(ranks, "world", 7, std::chrono::seconds(1), TimeLimit::step, {})->rank,
            0);
}

TEST(GlooWatch, KnowsWhetherTheStoreAnswers) {
  const StoreLines lines;
  GlooWatch own(std::make_shared<CutOffStore>(make_thread_store(), lines), 3, 4,
                std::make_shared<Recorder>(3));
  lines.become(StoreLine::State::silent);
  while (own.is_store_answering()) std::this_thread::yield();
  EXPECT_FALSE(own.missing()) << "it may only be slow";
  lines.become(StoreLine::State::answers);
  while (!own.is_store_answering()) std::this_thread::yield();
}

// What the store does for a connection that it loses, this test does.
TEST(GlooWatch, OfTheHolderTellsTheOthersOfARankThatTheStoreHasLost) {
  const auto store = std::make_shared<CutOffStore>(make_thread_store(), StoreLines{});
  GlooWatch holder(store, 0, 3, std::make_shared<Recorder>(0));
  GlooWatch neighbour(store, 1, 3, std::make_shared<Recorder>(1));
  { const GlooWatch beyond(store, 2, 3, std::make_shared<Recorder>(2)); }
  while (!store->find("when lost/lost")) std::this_thread::yield();
  store->set("lost", "2");
  while (!neighbour.missing()) std::this_thread::yield();
  EXPECT_EQ(neighbour.missing()->message(1, kWatchedCall),
            "rank 1: barrier of head (group world, sequence 7) waits for rank 2, which cannot be "
            "reached; its last act: none yet; the network to its host is cut or too slow");
  EXPECT_TRUE(neighbour.is_host_lost()) << "what the holder has told";
}

// As a rank does that waits for a call: it asks the watch under the lock that the alarm wants.
TEST(GlooWatch, AnswersWhileAnAlarmWaitsForTheOneWhoAsks) {
  GlooWatch own(make_thread_store(), 0, 1, std::make_shared<Recorder>(0));
  std::mutex mutex;
  std::promise<void> sounds;
  std::once_flag is_first;
  own.add_alarm(&mutex, [&] {
    std::call_once(is_first, [&] { sounds.set_value(); });
    const std::lock_guard wanted(mutex);
  });
  std::unique_lock lock(mutex);
  own.leave("out of memory");
  sounds.get_future().wait();
  auto asked = std::async(std::launch::async, [&] { return own.missing(); });
  EXPECT_EQ(asked.wait_for(std::chrono::minutes(1)), std::future_status::ready);
  lock.unlock();
  EXPECT_EQ(asked.get()->how, "failed: out of memory");
  EXPECT_FALSE(own.is_host_lost()) << "its connections are closed in order";
  own.remove_alarm(&mutex);
}

}  // namespace
}  // namespace fullshard::comm
