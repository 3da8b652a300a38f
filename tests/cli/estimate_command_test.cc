// SPDX-License-Identifier: Apache-2.0
// `estimate` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTable = "fullshard estimate --deepspeed-table ";
const std::string kPlanned =
    "fullshard estimate --model llama-tiny --sequence-length 16 --device-memory ";

TEST(EstimateCommand, PrintsDeepSpeedsTable) {
  const auto ended = launch::shell(
      kTable +
      "--total-params 3000000000 --largest-layer-params 33000000 --gpus-per-node 8 --json");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_EQ(nlohmann::json::parse(ended.output)["zero3"][0]["largest_layer_bytes"], 132'000'000);
}

TEST(EstimateCommand, CountsNoTableOfWhatIsLeftOutOrCannotBe) {
  const auto refused = [](const std::string& words, const std::string& text) {
    const auto ended = launch::shell(kTable + words);
    EXPECT_EQ(ended.status, 2) << words;
    EXPECT_EQ(ended.output, "error: " + text + "\n");
  };
  refused("--total-params 1000",
          "--total-params: needs --largest-layer-params, from which stage 3 is computed; give "
          "both, or --model");
  refused("--total-params 1000 --largest-layer-params 1001",
          "--total-params: is 1000, but the largest layer alone has 1001; give those of all "
          "layers");
  refused("--total-params 9000000000000000000 --largest-layer-params 1",
          "--deepspeed-table: has 1.8e+19 bytes, expected at most 9.2e+18; give fewer parameters, "
          "GPUs or nodes");
}

TEST(EstimateCommand, WarnsOfFlagsOfTheTableWithoutIt) {
  const auto ended = launch::shell(kPlanned + "1GB --gpus-per-node 4");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output,
              HasSubstr("warning: --gpus-per-node: has no effect without --deepspeed-table\n"));
}

TEST(EstimateCommand, HasARowForEachShardingFactor) {
  const std::string words =
      "fullshard estimate --model llama-tiny --sequence-length 16 --micro-batch 1 "
      "--sharding-factors "
      "--ranks 16 ";
  const auto ended = launch::shell(words + "--json");
  ASSERT_EQ(ended.status, 0) << ended.output;
  const auto rows = nlohmann::json::parse(ended.output);
  ASSERT_EQ(rows.size(), 5u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["factor"], 1 << i);
    EXPECT_EQ(rows[i]["copies"], 16 >> i);
    EXPECT_GT(rows[i]["step_s"], 0.0);
    EXPECT_EQ(rows[i]["fits"], true);
    if (i == 0) continue;
    EXPECT_LT(rows[i]["rest_bytes"], rows[i - 1]["rest_bytes"]);
  }
  // Two hosts of eight: shards of one host are gathered inside it.
  EXPECT_LT(rows[3]["sent_between_hosts_bytes"], rows[4]["sent_between_hosts_bytes"]);
  const auto table = launch::shell(words + "--cluster a100-40 --device-memory 1MB");
  EXPECT_THAT(table.output, HasSubstr("factor copies"));
  EXPECT_THAT(table.output, HasSubstr("fullshard simulate on a100-40 (977 KiB of memory)"));
  EXPECT_THAT(table.output, Not(HasSubstr(" yes ")));
}

TEST(EstimateCommand, HasNoShardingFactorsOfWhatShardsNothing) {
  const std::string words = kPlanned + "1GB --ranks 2 --sharding-factors ";
  const auto whole = launch::shell(words + "--strategy NO_SHARD");
  EXPECT_EQ(whole.status, 2);
  EXPECT_THAT(whole.output, HasSubstr("--sharding-factors: the plan shards nothing"));
  const auto named = launch::shell(words + "--sharding-factor 2");
  EXPECT_EQ(named.status, 2);
  EXPECT_THAT(named.output, HasSubstr("keep one of the flags"));
  EXPECT_THAT(launch::shell(kPlanned + "1GB --cluster h100").output,
              HasSubstr("warning: --cluster: has no effect without --sharding-factors\n"));
}

// The estimate itself succeeded; only `train` exits with 3.
TEST(EstimateCommand, IsDoneAlsoWhereItDoesNotFit) {
  const auto ended = launch::shell(kPlanned + "1MB --json");
  EXPECT_EQ(ended.status, 0);
  EXPECT_EQ(nlohmann::json::parse(ended.output)["fits"], false);
  EXPECT_THAT(launch::shell(kPlanned + "1MB").output, Not(HasSubstr("the the")));
}

}  // namespace
}  // namespace fullshard::cli
