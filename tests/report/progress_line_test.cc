// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/progress_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fullshard/base/error.h"

namespace fullshard::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepRecord progress_at_step(int64_t step) {
  return {.step = step,
          .loss = 2.34567,
          .lr = 3e-4,
          .grad_norm = 1.2345,
          .tokens_per_s = 45612,
          .mfu = 0.4123,
          .device_peak_bytes = 1320702444,
          .host_peak_bytes = 1};
}

// A terminal, or a file, that remembers what was written to it.
struct Screen {
  double now = 0;
  int columns = 200;
  std::vector<std::string> written{};

  ProgressOptions options(ProgressMode mode, int64_t num_steps = 1000) {
    return {.mode = mode,
            .num_steps = num_steps,
            .width = [this] { return columns; },
            .clock = [this] { return now; },
            .write = [this](std::string_view text) { written.emplace_back(text); }};
  }
};

constexpr char kFull[] =
    "step 120/1000  loss 2.3457  lr 0.0003  norm 1.23  45.6 K tokens/s  MFU 41.2%  1.23 GiB  12:34 "
    "left";

TEST(ProgressText, HasAllInOneLine) {
  EXPECT_EQ(progress_text(progress_at_step(120), 1000, 754.0, 200), kFull);
  EXPECT_EQ(progress_text(progress_at_step(120), 1000, 754.0, sizeof(kFull) - 1), kFull);
}

TEST(ProgressText, LeavesOutWhatMattersLeastAsTheWindowNarrows) {
  const auto at_width = [](int width) {
    return progress_text(progress_at_step(120), 1000, 754.0, width);
  };
  EXPECT_EQ(
      at_width(96),
      "step 120/1000  loss 2.3457  lr 0.0003  norm 1.23  45.6 K tokens/s  MFU 41.2%  12:34 left");
  EXPECT_EQ(at_width(80),
            "step 120/1000  loss 2.3457  lr 0.0003  norm 1.23  45.6 K tokens/s  12:34 left");
  EXPECT_EQ(at_width(60), "step 120/1000  loss 2.3457  45.6 K tokens/s  12:34 left");
  EXPECT_EQ(at_width(40), "step 120/1000  loss 2.3457  12:34 left");
  EXPECT_EQ(at_width(20), "step 120/1000");
  EXPECT_EQ(at_width(6), "step 1");
}

TEST(ProgressText, LeavesOutWhatIsNotKnown) {
  StepRecord record = progress_at_step(3);
  record.grad_norm = record.mfu = std::nullopt;
  record.device_peak_bytes = 0;
  record.host_peak_bytes = 512 << 20;
  EXPECT_EQ(progress_text(record, 0, std::nullopt, 200),
            "step 3  loss 2.3457  lr 0.0003  45.6 K tokens/s  512 MiB");
}

TEST(ProgressText, SaysThatAStepWasSkipped) {
  StepRecord record = progress_at_step(3);
  record.skipped = true;
  record.loss_scale = 32768;
  EXPECT_THAT(progress_text(record, 10, 5.0, 50), HasSubstr("skipped at scale 32768"));
  record.loss_scale = 1;
  EXPECT_THAT(progress_text(record, 10, 5.0, 50), HasSubstr("skipped  "));
}

TEST(ProgressLine, DrawsOverItselfAtMostTenTimesASecond) {
  Screen screen;
  screen.columns = 41;
  ProgressLine line(screen.options(ProgressMode::terminal));
  for (int step = 1; step <= 10; ++step) {
    screen.now += 0.0625;
    line.step(progress_at_step(step));
  }
  // Drawn at 0.0625, then every second step: 0.125 s later.
  EXPECT_EQ(screen.written.size(), 5u);
  EXPECT_EQ(screen.written[0], "\rstep 1/1000  loss 2.3457  1:02 left\x1b[K");
  EXPECT_EQ(screen.written[4], "\rstep 9/1000  loss 2.3457  1:02 left\x1b[K");
}

TEST(ProgressLine, DrawsTheLastStepAlways) {
  Screen screen;
  screen.columns = 30;
  ProgressLine line(screen.options(ProgressMode::terminal, 2));
  line.step(progress_at_step(1));
  line.step(progress_at_step(2));
  EXPECT_THAT(screen.written,
              ElementsAre("\rstep 1/2  loss 2.3457\x1b[K", "\rstep 2/2  loss 2.3457\x1b[K"));
}

TEST(ProgressLine, MakesWayForLinesOfTheLog) {
  Screen screen;
  screen.columns = 20;
  ProgressLine line(screen.options(ProgressMode::terminal));
  line.log("before");
  line.step(progress_at_step(1));
  line.log("saved");
  line.clear();
  line.clear();
  EXPECT_THAT(screen.written, ElementsAre("before\n", "\rstep 1/1000\x1b[K", "\r\x1b[K", "saved\n",
                                          "\rstep 1/1000\x1b[K", "\r\x1b[K"));
}

TEST(ProgressLine, FollowsTheWidthOfTheWindow) {
  Screen screen;
  ProgressLine line(screen.options(ProgressMode::terminal));
  screen.columns = 8;
  line.step(progress_at_step(1));
  screen.columns = 14;
  screen.now = 1;
  line.step(progress_at_step(2));
  EXPECT_THAT(screen.written, ElementsAre("\rstep 1/\x1b[K", "\rstep 2/1000\x1b[K"));
}

TEST(ProgressLine, PrintsPlainLinesEveryFewStepsAndAtTheEnd) {
  Screen screen;
  ProgressOptions options = screen.options(ProgressMode::lines, 7);
  options.steps_per_print = 3;
  ProgressLine line(std::move(options));
  for (int step = 1; step <= 7; ++step) {
    screen.now += 2;
    line.step(progress_at_step(step));
  }
  line.log("done");
  line.clear();
  const std::string middle =
      "loss 2.3457  lr 0.0003  norm 1.23  45.6 K tokens/s  MFU 41.2%  1.23 GiB";
  EXPECT_THAT(screen.written, ElementsAre("step 3/7  " + middle + "  0:08 left\n",
                                          "step 6/7  " + middle + "  0:02 left\n",
                                          "step 7/7  " + middle + "  0:00 left\n", "done\n"));
}

TEST(ProgressLine, PrintsTheTimeByPhaseWhereItWasMeasured) {
  Screen screen;
  ProgressLine line(screen.options(ProgressMode::lines));
  StepRecord record = progress_at_step(10);
  record.step_s = 0.25;
  record.comm_s = 0.04;
  record.exposed_comm_s = 0.0105;
  record.phases =
      PhaseTimes{.data_s = 0.0005, .forward_s = 0.08, .backward_s = 0.15, .optimizer_s = 0.009};
  line.step(record);
  ASSERT_EQ(screen.written.size(), 1u);
  EXPECT_THAT(screen.written[0],
              ::testing::EndsWith("\nstep 10 took 250 ms: data 500 us, forward 80 ms, backward 150 "
                                  "ms, optimizer 9 ms, exposed communication 10.5 ms of 40 ms\n"));
}

TEST(ProgressLine, IsSilentWhenAskedToBe) {
  Screen screen;
  ProgressLine line(screen.options(ProgressMode::silent));
  line.step(progress_at_step(10));
  line.log("text");
  line.clear();
  EXPECT_THAT(screen.written, IsEmpty());
}

TEST(ProgressLine, SmoothsTheTimeLeft) {
  Screen screen;
  ProgressOptions options = screen.options(ProgressMode::lines, 1100);
  options.first_step = 1000;
  options.steps_per_print = 1;
  ProgressLine line(std::move(options));
  const auto after = [&](double seconds, int64_t step) {
    screen.now += seconds;
    line.step(progress_at_step(step));
    const std::string& text = screen.written.back();
    return text.substr(text.rfind("  ") + 2);
  };
  EXPECT_EQ(after(1, 1001), "1:39 left\n");
  EXPECT_EQ(after(1, 1002), "1:38 left\n");
  // One slow step among three, the newest counting a little more: 1 + 10·0.1/0.271 s a step.
  EXPECT_EQ(after(11, 1003), "7:35 left\n");
  // Two steps at once count as one measurement of their mean: 1.2439/0.3439 s a step.
  EXPECT_EQ(after(2, 1005), "5:44 left\n");
}

TEST(ProgressLine, RefusesToPrintEveryNoSteps) {
  Screen screen;
  ProgressOptions options = screen.options(ProgressMode::lines);
  options.steps_per_print = 0;
  EXPECT_THROW(ProgressLine line(std::move(options)), Error);
}

}  // namespace
}  // namespace fullshard::report
