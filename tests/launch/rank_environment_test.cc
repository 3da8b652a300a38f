// SPDX-License-Identifier: Apache-2.0
#include "fullshard/launch/rank_environment.h"

#include <gtest/gtest.h>

#include "tests/launcher_settings.h"

namespace fullshard::launch {
namespace {

using testing::Settings;

Settings split(const std::vector<std::string>& variables) {
  Settings settings;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    settings[variable.substr(0, equals)] = variable.substr(equals + 1);
  }
  return settings;
}

// LauncherEnvironment reads the variables that are written here.
TEST(RankEnvironment, IsReadAsItWasWritten) {
  LaunchOptions options;
  options.ranks = 2;
  options.nodes = 3;
  options.node_rank = 1;
  const auto environments = rank_environments(
      options, {.address = "n0", .port = 1234, .secret = "token", .restart = 2, .notice = "5:6"});
  ASSERT_EQ(environments.size(), 2u);
  const auto found = testing::told_by(split(environments[1]));
  EXPECT_TRUE(found.is_rank);
  EXPECT_EQ(found.torchrun.rank.number(), 3);
  EXPECT_EQ(found.torchrun.size.number(), 6);
  EXPECT_EQ(found.torchrun.local_rank.number(), 1);
  EXPECT_EQ(found.torchrun.local_size.number(), 2);
  EXPECT_EQ(found.master_address.text, "n0");
  EXPECT_EQ(found.master_port.number(), 1234);
  EXPECT_EQ(found.job_secret(), "token");
  EXPECT_EQ(found.restart.number(), 2);
  EXPECT_EQ(found.agent_store.text, "False");
  EXPECT_EQ(found.meeting.text, "5:6");
}

}  // namespace
}  // namespace fullshard::launch
