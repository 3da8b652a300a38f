// SPDX-License-Identifier: Apache-2.0
// `watch`, and `report` of several runs, as a user types them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "fullshard/report/records/run_record.h"
#include "fullshard/report/records/step_record.h"
#include "tests/launch/shell.h"

namespace fullshard::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class WatchedRuns : public ::testing::Test {
 protected:
  void begin(const std::string& name, RunStatus status, const std::string& problem = "") {
    std::filesystem::create_directories(folder_ / name);
    RunRecord record;
    record.status = status;
    record.problem = problem;
    record.num_steps = 4;
    record.model.name = "llama";
    write_run_record(folder_ / name + "/run.json", record);
  }
  void step(const std::string& name, int64_t number) {
    StepRecord record{.step = number, .loss = 2.0 / static_cast<double>(number)};
    record.step_s = 1;
    std::ofstream(folder_ / name + "/metrics.jsonl", std::ios::app) << to_json_line(record) << "\n";
  }
  launch::Ended run(const std::string& words) {
    return launch::shell("cd " + folder_.path() + "; fullshard " + words);
  }

  launch::TemporaryFolder folder_;
};

TEST_F(WatchedRuns, ShowTheLastStepOfARunThatIsOver) {
  begin("a", RunStatus::finished);
  for (int64_t number = 1; number <= 4; ++number) step("a", number);
  const launch::Ended ended = run("watch a");
  EXPECT_EQ(ended.status, 0);
  EXPECT_THAT(ended.output, StartsWith("step 4/4  loss 0.5000  "));
  EXPECT_THAT(ended.output, EndsWith("\na: done\n"));
  EXPECT_THAT(ended.output, Not(HasSubstr("step 3/4")));
}

TEST_F(WatchedRuns, AreFollowedUntilTheyEnd) {
  begin("a", RunStatus::running);
  step("a", 1);
  launch::Ended ended;
  // Each step is written after the one before was shown.
  std::thread watcher([&] { ended = run("watch a > shown"); });
  const auto wait_for = [&](const std::string& text) {
    while (folder_.read("shown").find(text) == std::string::npos) std::this_thread::yield();
  };
  wait_for("step 1/4");
  step("a", 2);
  wait_for("step 2/4");
  step("a", 3);
  wait_for("step 3/4");
  begin("a", RunStatus::interrupted, "SIGTERM");
  watcher.join();
  EXPECT_EQ(ended.status, 130);
  EXPECT_THAT(folder_.read("shown"), EndsWith("a: interrupted: SIGTERM\n"));
}

TEST_F(WatchedRuns, ThatFailedSayWhy) {
  begin("a", RunStatus::failed, "rank 1: the loss is not finite");
  const launch::Ended ended = run("watch a");
  EXPECT_EQ(ended.status, 1);
  EXPECT_EQ(ended.output, "a: failed: rank 1: the loss is not finite\n");
}

TEST_F(WatchedRuns, AreDrawnOnATerminal) {
  begin("a", RunStatus::finished);
  for (int64_t number = 1; number <= 4; ++number) step("a", number);
  // `script` gives the command a terminal of its own.
  const launch::Ended ended = launch::shell(
      "cd " + folder_.path() + "; script -qec 'stty cols 80; fullshard watch a' /dev/null");
  if (ended.status == 127) GTEST_SKIP() << "no program script (package bsdutils)";
  EXPECT_EQ(ended.status, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("loss 0.5000  █▃▂▁"));
  EXPECT_THAT(ended.output, HasSubstr("last update 0:0"));
}

TEST_F(WatchedRuns, MustBeThere) {
  const launch::Ended ended = run("watch nowhere");
  EXPECT_EQ(ended.status, 4);
  EXPECT_EQ(ended.output,
            "error: watch: 'nowhere' holds no run; give the --output folder of one\n");
}

TEST_F(WatchedRuns, AreComparedOnOnePage) {
  for (const std::string name : {"a", "b"}) {
    begin(name, RunStatus::finished);
    step(name, 1);
  }
  EXPECT_EQ(run("report a b").output, "comparison.html\n");
  EXPECT_THAT(folder_.read("comparison.html"), HasSubstr("<title>a, b</title>"));
  const auto said = nlohmann::json::parse(run("report a b --json -o page.html").output);
  EXPECT_EQ(said["page"], "page.html");
  EXPECT_EQ(said["runs"][1]["folder"], "b");
  EXPECT_EQ(said["runs"][1]["loss"], 2.0);
  const launch::Ended many = run("report a b a b a b a");
  EXPECT_EQ(many.status, 2);
  EXPECT_EQ(many.output,
            "error: report: 7 runs, but at most 6 can be told apart on a page; name fewer\n");
}

}  // namespace
}  // namespace fullshard::cli
