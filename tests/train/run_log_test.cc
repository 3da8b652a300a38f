// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <functional>

#include "fullshard/base/error.h"
#include "fullshard/comm/world/world.h"
#include "fullshard/nn/unit.h"
#include "fullshard/report/records/metrics_file.h"
#include "fullshard/report/records/run_file.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::train {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;
using SteadyClock = std::chrono::steady_clock;

void with_log(int ranks, const RunLogOptions& options,
              const std::function<void(RunLog& log, int rank)>& body) {
  run_ranks({.ranks = ranks}, [&](const World& world) {
    Wrap<torch::nn::Linear> model(3, 2);
    const auto sharded = shard(model, world, {.sync_module_states = true});
    RunLog log(sharded, options);
    body(log, world.rank());
  });
}

RunLogOptions quiet_in(const TemporaryFolder& folder) {
  return {.output = folder.path(), .model = "line", .num_steps = 2, .quiet = true};
}

void finish_two_steps(RunLog& log, int first = 1) {
  for (int step = first; step < first + 2; ++step) log.step({.step = step, .loss = 1.0 / step});
  log.finish();
}

TEST(RunLog, RecordsTheMeanOfAllRanksAndTheSumOfTheirTokens) {
  const TemporaryFolder folder;
  auto options = quiet_in(folder);
  options.settings = {{"lr", "0.1"}};
  options.command = {"program", "--fast"};
  with_log(2, options, [](RunLog& log, int rank) {
    const StepRecord first = log.step({.step = 1,
                                       .loss = rank == 0 ? 1.0 : 4.0,
                                       .lr = 0.1,
                                       .grad_norm = 2.0,
                                       .tokens = 10 + rank});
    EXPECT_EQ(first.loss, 2.5);
    EXPECT_EQ(first.tokens, 21);
    log.step({.step = 2, .loss = 0.5, .tokens = 8, .eval_loss = rank == 0 ? 3.0 : 5.0});
    log.warn("it rains");
    log.finish();
  });
  const auto steps = report::read_metrics(folder.file("metrics.jsonl")).steps;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].loss, 2.5);
  EXPECT_EQ(steps[0].lr, 0.1);
  EXPECT_EQ(steps[0].grad_norm, 2.0);
  EXPECT_EQ(steps[0].tokens, 21);
  EXPECT_EQ(steps[0].eval_loss, std::nullopt);
  EXPECT_GT(steps[0].host_peak_bytes, 0);
  EXPECT_GT(steps[0].step_s, 0);
  EXPECT_EQ(steps[1].eval_loss, 4.0);

  const RunRecord record = read_run_record(folder.file("run.json"));
  EXPECT_EQ(record.status, RunStatus::finished);
  EXPECT_EQ(record.command, options.command);
  EXPECT_EQ(record.mesh.world, 2);
  EXPECT_EQ(record.model.name, "line");
  EXPECT_EQ(record.model.architecture, "Linear");
  EXPECT_EQ(record.model.parameters, 8);
  EXPECT_EQ(record.num_steps, 2);
  EXPECT_EQ(record.tokens, 37);
  EXPECT_EQ(record.configuration, R"({"lr":{"value":"0.1","origin":"program"}})");
  EXPECT_EQ(record.warnings.back(), "it rains");
  EXPECT_EQ(record.memory.ranks.size(), 2u);
  EXPECT_TRUE(record.ended.has_value());
  EXPECT_THAT(testing::read_file(folder.file("report.html")), HasSubstr("</html>"));
}

TEST(RunLog, KeepsTheLinesOfTheRunThatItGoesOnFrom) {
  const TemporaryFolder folder;
  with_log(1, quiet_in(folder), [](RunLog& log, int) {
    for (int step = 1; step <= 5; ++step) log.step({.step = step, .loss = 1.0 * step});
  });
  auto options = quiet_in(folder);
  options.first_step = 3;
  with_log(1, options, [](RunLog& log, int) {
    log.step({.step = 4, .loss = 40});
    log.finish();
  });
  std::vector<double> losses;
  for (const auto& step : report::read_metrics(folder.file("metrics.jsonl")).steps) {
    losses.push_back(step.loss);
  }
  EXPECT_EQ(losses, (std::vector<double>{1, 2, 3, 40}));
}

TEST(RunLog, CountsTheStepsOfAllItsParts) {
  const TemporaryFolder folder;
  with_log(1, quiet_in(folder), [](RunLog& log, int) {
    for (int step = 1; step <= 3; ++step) log.step({.step = step, .loss = 1, .tokens = 10});
    log.finish();
  });
  auto options = quiet_in(folder);
  options.first_step = 2;
  with_log(1, options, [](RunLog& log, int) {
    log.step({.step = 3, .loss = 1, .tokens = 10});
    log.finish();
  });
  const RunRecord record = read_run_record(folder.file("run.json"));
  EXPECT_EQ(record.tokens, 30);
  EXPECT_EQ(record.first_step, 2);
}

TEST(RunLog, RefusesAFolderThatHoldsARunOnAllRanks) {
  const TemporaryFolder folder;
  with_log(1, quiet_in(folder), [](RunLog& log, int) { finish_two_steps(log); });
  const std::string before = testing::read_file(folder.file("metrics.jsonl"));
  std::vector<std::string> errors(3);
  run_ranks({.ranks = 3}, [&](const World& world) {
    Wrap<torch::nn::Linear> model(3, 2);
    const auto sharded = shard(model, world, {.sync_module_states = true});
    try {
      RunLog log(sharded, quiet_in(folder));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      errors[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("holds a run already"));
  EXPECT_EQ(testing::read_file(folder.file("metrics.jsonl")), before);
  auto options = quiet_in(folder);
  options.overwrite = true;
  with_log(1, options, [](RunLog& log, int) { finish_two_steps(log, 7); });
  EXPECT_EQ(report::read_metrics(folder.file("metrics.jsonl")).steps.front().step, 7);
}

TEST(RunLog, ARunThatIsLeftWithoutItsEndHasFailed) {
  const TemporaryFolder folder;
  with_log(2, quiet_in(folder), [](RunLog& log, int) { log.step({.step = 1, .loss = 1}); });
  const RunRecord record = read_run_record(folder.file("run.json"));
  EXPECT_EQ(record.status, RunStatus::failed);
  EXPECT_EQ(record.problem, "the program left its loop before the run was finished");
  EXPECT_TRUE(testing::file_exists(folder.file("report.html")));
}

// On every rank: none waits for another that threw.
TEST(RunLog, EndsOnce) {
  const TemporaryFolder folder;
  const std::string expected =
      "RunLog: " + folder.path() +
      ": is finished already; a run that goes on needs a RunLog of its own";
  with_log(3, quiet_in(folder), [&](RunLog& log, int) {
    finish_two_steps(log);
    EXPECT_EQ(testing::message_of([&] { log.step({.step = 3, .loss = 1}); }), expected);
    EXPECT_EQ(testing::message_of([&] { log.finish(RunStatus::failed); }), expected);
  });
  EXPECT_EQ(report::read_metrics(folder.file("metrics.jsonl")).steps.size(), 2u);
  EXPECT_EQ(read_run_record(folder.file("run.json")).status, RunStatus::finished);
}

TEST(RunLog, AnEvaluationBelongsToAllRanks) {
  const TemporaryFolder folder;
  with_log(2, quiet_in(folder), [](RunLog& log, int rank) {
    OwnStep own{.step = 1, .loss = 1};
    if (rank == 1) own.eval_loss = 2;
    try {
      log.step(own);
      ADD_FAILURE() << "no Error was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "RunLog: step 1: 1 of 2 ranks gave an eval_loss; give it on all of them");
    }
  });
}

TEST(RunLog, SecondsOfAStepLieBetweenItsBeginningAndItsEnd) {
  const TemporaryFolder folder;
  with_log(1, quiet_in(folder), [](RunLog& log, int) {
    const auto seconds = [](SteadyClock::duration time) {
      return std::chrono::duration<double>(time).count();
    };
    const auto pass_time = [] {
      const auto start = SteadyClock::now();
      while (SteadyClock::now() - start < std::chrono::milliseconds(2)) {
      }
    };
    pass_time();  // an evaluation
    const auto before = SteadyClock::now();
    log.begin_step();
    pass_time();
    log.end_step();
    const auto after = SteadyClock::now();
    pass_time();  // a checkpoint
    const StepRecord bounded = log.step({.step = 1, .loss = 1});
    EXPECT_LE(bounded.step_s, seconds(after - before));
    EXPECT_GE(bounded.step_s, 0.002);
    pass_time();
    EXPECT_GE(log.step({.step = 2, .loss = 1}).step_s, 0.002);
  });
}

}  // namespace
}  // namespace fullshard::train
