// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/watch_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "fullshard/report/records/metrics_tail.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

StepRecord watched_step(int64_t step) {
  StepRecord record{.step = step, .loss = 8.0 - static_cast<double>(step), .lr = 0.5};
  record.step_s = 2;
  record.tokens_per_s = 12'345;
  record.host_peak_bytes = 3 << 20;
  return record;
}

TEST(Sparkline, GoesFromTheLeastToTheGreatest) {
  EXPECT_EQ(sparkline({0, 1, 2, 3, 4, 5, 6, 7}), "▁▂▃▄▅▆▇█");
  EXPECT_EQ(sparkline({5, 5}), "▁▁");
  EXPECT_EQ(sparkline({0, NAN, 7}), "▁ █");
  EXPECT_EQ(sparkline({}), "");
}

TEST(WatchView, TellsHowARunStands) {
  WatchView view("runs/a");
  RunRecord run;
  run.num_steps = 10;
  run.model.name = "llama-15m";
  run.mesh.world = 2;
  run.device = "cpu";
  EXPECT_THAT(view.lines(run, 3, 100), ElementsAre("runs/a  running  llama-15m, 2 ranks on cpu",
                                                   "no step yet", "last update 0:03 ago"));
  for (int64_t step = 1; step <= 5; ++step) view.add(watched_step(step));
  EXPECT_THAT(
      view.lines(run, 3, 100),
      ElementsAre("runs/a  running  llama-15m, 2 ranks on cpu",
                  "step 5 of 10  ████████████████████░░░░░░░░░░░░░░░░░░░░  0:10 left",
                  "loss 3.0000  █▆▅▃▁", "12.3 K tokens/s  3 MiB  lr 0.5", "last update 0:03 ago"));
}

TEST(WatchView, FitsTheTerminalByCharacters) {
  WatchView view("a");
  for (int64_t step = 1; step <= 60; ++step) view.add(watched_step(step));
  const auto lines = view.lines({}, 0, 16);
  EXPECT_EQ(lines[2], "loss -52.0000  █");  // cut after a whole character
}

TEST(MetricsTail, GivesWhatIsNewInWholeLines) {
  testing::TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  MetricsTail tail(path);
  EXPECT_THAT(tail.read(), IsEmpty());
  std::ofstream file(path);
  const std::string second = to_json_line(watched_step(2)) + "\n";
  file << to_json_line(watched_step(1)) << "\n" << second.substr(0, 9) << std::flush;
  EXPECT_THAT(tail.read(), ElementsAre(watched_step(1)));
  EXPECT_THAT(tail.read(), IsEmpty());
  file << second.substr(9) << "junk\n" << to_json_line(watched_step(3)) << "\n" << std::flush;
  EXPECT_THAT(tail.read(), ElementsAre(watched_step(2), watched_step(3)));
}

TEST(MetricsTail, BeginsAgainWithAFileThatWasCut) {
  testing::TemporaryFolder folder;
  const std::string path = folder.file("metrics.jsonl");
  std::ofstream(path) << to_json_line(watched_step(1)) << "\n"
                      << to_json_line(watched_step(2)) << "\n";
  MetricsTail tail(path);
  EXPECT_EQ(tail.read().size(), 2U);
  std::ofstream(path) << to_json_line(watched_step(1)) << "\n";
  EXPECT_THAT(tail.read(), ElementsAre(watched_step(1)));
  EXPECT_TRUE(tail.has_restarted());
}

}  // namespace
}  // namespace fullshard::report
