// SPDX-License-Identifier: Apache-2.0
#include "fullshard/memory/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <sstream>
#include <utility>
#include <vector>

namespace fullshard::memory {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// What is logged while it lives.
class Logged {
 public:
  Logged()
      : before_(spdlog::default_logger()),
        sink_(std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink_));
  }
  ~Logged() { spdlog::set_default_logger(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> before_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_;
};

TEST(HostMemory, IsPinnedWholeAndUnpinnedWhenItIsGone) {
  std::vector<std::pair<void*, int64_t>> pinned;
  std::vector<void*> unpinned;
  const auto source = host_memory_source({.pin =
                                              [&](void* data, int64_t bytes) {
                                                pinned.emplace_back(data, bytes);
                                                return std::string();
                                              },
                                          .unpin = [&](void* data) { unpinned.push_back(data); }});
  void* data = nullptr;
  {
    const auto memory = source(100'001);
    data = memory.data_ptr();
    EXPECT_EQ(memory.numel(), 100'001);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
    EXPECT_THAT(pinned, ElementsAre(std::pair(data, int64_t{100'001})));
    EXPECT_THAT(unpinned, IsEmpty());
  }
  EXPECT_THAT(unpinned, ElementsAre(data));
}

TEST(HostMemory, ThatCannotBePinnedStaysPageableAndIsToldOnce) {
  const Logged logged;
  int unpinned = 0;
  const auto source = host_memory_source(
      {.pin = [](void*, int64_t) { return std::string("out of lockable memory"); },
       .unpin = [&](void*) { ++unpinned; }});
  auto memory = source(4096);
  memory.fill_(7);
  EXPECT_EQ(memory.sum().item<int64_t>(), 7 * 4096);
  EXPECT_THAT(logged.text(), HasSubstr("4096 bytes of host memory could not be pinned (out of "
                                       "lockable memory)"));
  EXPECT_THAT(logged.text(), HasSubstr("ulimit -l"));
  const auto once = logged.text();
  (void)source(64);
  EXPECT_EQ(logged.text(), once);
  memory = at::Tensor();
  EXPECT_EQ(unpinned, 0);
}

TEST(HostMemory, MayBeEmpty) { EXPECT_EQ(host_memory_source({})(0).numel(), 0); }

}  // namespace
}  // namespace fullshard::memory
