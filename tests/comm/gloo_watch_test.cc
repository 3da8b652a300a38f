#include "fullshard/comm/gloo_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>

namespace fullshard {
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
  own.remove_alarm(&mutex);
}

}  // namespace
}  // namespace fullshard
