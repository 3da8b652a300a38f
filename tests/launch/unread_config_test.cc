// SPDX-License-Identifier: Apache-2.0
// A configuration that `launch` was given and that the program does not read.
#include <gtest/gtest.h>

#include "fullshard/launch/launch.h"

namespace fullshard::launch {
namespace {

// Ranks that send the launcher these letters of base/rank_notice, each after the previous one is
// read.
std::string said_of(const std::string& letters, LaunchOptions options) {
  options.command = {"sh", "-c",
                     "for each in " + letters +
                         "; do printf $each > /proc/self/fd/${FULLSHARD_MEETING%%:*}; done"};
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(launch(options).status, 0);
  return ::testing::internal::GetCapturedStderr();
}

constexpr const char* kWarning =
    "warning: launch: the program has not read fsdp.yaml, so it changes only ranks and "
    "hosts; read it with Plan::from_arguments(argc, argv), and give the plan to shard()\n";

TEST(UnreadConfig, IsWarnedOfOnceWhenAModelIsShardedOrRanksHaveMet) {
  const LaunchOptions options{.ranks = 2, .command = {}, .config = "fsdp.yaml"};
  EXPECT_EQ(said_of("b m s s", options), kWarning);
  EXPECT_EQ(said_of("b m", options), kWarning);
  EXPECT_EQ(said_of("s", options), kWarning);
  EXPECT_EQ(said_of("c b m s", options), "");
  EXPECT_EQ(said_of("b m c s", options), "");
}

TEST(UnreadConfig, IsNoMatterWithoutOneOrInAProgramThatMakesNoWorld) {
  EXPECT_EQ(said_of("b m s", {.ranks = 2, .command = {}}), "");
  EXPECT_EQ(said_of("", {.ranks = 2, .command = {}, .config = "fsdp.yaml"}), "");
}

TEST(UnreadConfig, IsWarnedOfByTheFirstNodeOnly) {
  EXPECT_EQ(said_of("b m s", {.ranks = 1,
                              .command = {},
                              .config = "fsdp.yaml",
                              .nodes = 2,
                              .node_rank = 1,
                              .master_address = "127.0.0.1",
                              .secret = "x"}),
            "");
}

}  // namespace
}  // namespace fullshard::launch
