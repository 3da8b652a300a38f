// SPDX-License-Identifier: Apache-2.0
// The example of a user's own training loop, started as a user would.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class OwnLoop : public ::testing::Test {
 protected:
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() + "; export HOME=" + folder_.path() +
                         " OMP_NUM_THREADS=1; fullshard launch --ranks 2 -- " FULLSHARD_BINARIES
                         "/own_loop " +
                         words);
  }
  std::vector<json> metrics(const std::string& output) {
    std::istringstream lines(folder_.read(output + "/metrics.jsonl"));
    std::vector<json> records;
    for (std::string line; std::getline(lines, line);) records.push_back(json::parse(line));
    return records;
  }
  json record(const std::string& output) { return json::parse(folder_.read(output + "/run.json")); }

  launch::TemporaryFolder folder_;
};

TEST_F(OwnLoop, GoesOnToTheBitAfterItWasInterrupted) {
  const launch::Ended whole = run("whole 12");
  ASSERT_EQ(whole.status, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("step 10/12  loss "));

  const launch::Ended cut = run("cut 12 8");
  EXPECT_EQ(cut.status, 1) << cut.output;
  EXPECT_THAT(cut.output, HasSubstr("stopped after step 8, as asked"));
  EXPECT_EQ(record("cut")["status"], "failed");
  EXPECT_EQ(metrics("cut").size(), 8u);
  const launch::Ended resumed = run("cut 12");
  ASSERT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(resumed.output, HasSubstr("going on after step 5"));

  const auto expected = metrics("whole"), found = metrics("cut");
  ASSERT_EQ(expected.size(), 12u);
  ASSERT_EQ(found.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(found[i]["step"], i + 1);
    for (const char* key : {"loss", "grad_norm", "lr", "tokens"}) {
      EXPECT_EQ(found[i][key].dump(), expected[i][key].dump()) << key << " of step " << i + 1;
    }
    EXPECT_EQ(found[i].value("eval_loss", json()).dump(),
              expected[i].value("eval_loss", json()).dump());
    EXPECT_EQ(found[i].contains("eval_loss"), (i + 1) % 5 == 0);
    EXPECT_EQ(found[i]["tokens"], 128);
  }
}

TEST_F(OwnLoop, LeavesWhatTheCommandLeaves) {
  const launch::Ended ended = run("out 5");
  ASSERT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("out/report.html"));
  const json run_json = record("out");
  EXPECT_EQ(run_json["mesh"]["world"], 2);
  EXPECT_EQ(run_json["mesh"]["shards"], 2);
  EXPECT_EQ(run_json["model"]["name"], "own_loop");
  EXPECT_EQ(run_json["model"]["architecture"], "Model");
  EXPECT_EQ(run_json["configuration"]["lr"]["value"], "0.003");
  EXPECT_EQ(run_json["tokens"], 5 * 128);
  EXPECT_EQ(run_json["memory_plan"]["ranks"].size(), 2u);
  EXPECT_FALSE(run_json["ended"].is_null());
  EXPECT_THAT(folder_.read("out/report.html"), HasSubstr("own_loop"));
  EXPECT_EQ(launch::shell("fullshard report " + (folder_ / "out")).status, 0);
}

}  // namespace
}  // namespace fullshard::cli
