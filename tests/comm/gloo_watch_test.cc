#include "fullshard/comm/gloo_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

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
              StartsWith("rank 0: barrier of unit 'head' (group world, sequence 7) waits for rank "
                         "1, which gives no sign of life"));
  EXPECT_EQ(own.missing()->rank, 1) << "all ranks are told";
}

}  // namespace
}  // namespace fullshard
