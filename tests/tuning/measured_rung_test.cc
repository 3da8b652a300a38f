// SPDX-License-Identifier: Apache-2.0
// Shell scripts in place of runs.
#include "fullshard/tuning/measured_rung.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>

#include "fullshard/data/tokens/token_file.h"
#include "fullshard/report/records/step_record.h"
#include "fullshard/tuning/random_tokens.h"
#include "tests/files.h"

namespace fullshard::tuning {
namespace {

using ::testing::HasSubstr;

class Trial : public ::testing::Test {
 protected:
  TrialEnd run(const std::string& script) {
    command_.words = {"sh", "-c", script};
    command_.output = folder_.path();
    return run_trial(command_, signals_);
  }

  // Steps of 100 tokens, with these seconds.
  std::string leave_steps(const std::vector<double>& seconds) {
    std::string lines;
    int64_t number = 0;
    for (const double step_s : seconds) {
      const StepRecord step{.step = ++number,
                            .tokens = 100,
                            .step_s = step_s,
                            .device_peak_bytes = 1000 + number,
                            .host_peak_bytes = 2000 + number};
      lines += to_json_line(step) + "\n";
    }
    return "cat > " + folder_.file("metrics.jsonl") + " <<'END'\n" + lines + "END\n";
  }

  const launch::Signals signals_;
  testing::TemporaryFolder folder_;
  TrialCommand command_;
};

TEST_F(Trial, LeavesTheFirstStepOutOfItsSpeed) {
  const TrialEnd end = run(leave_steps({10, 1, 3}));
  EXPECT_TRUE(end.measured.fits) << end.measured.why;
  EXPECT_DOUBLE_EQ(end.measured.tokens_per_s, 50);
  EXPECT_EQ(end.measured.peak_bytes, 2003);
}

TEST_F(Trial, IsNotSlowedByOneStepThatWasDisturbed) {
  EXPECT_DOUBLE_EQ(run(leave_steps({10, 2, 90, 1.5})).measured.tokens_per_s, 50);
}

TEST_F(Trial, OnAGpuCountsTheDevicesPeakAgainstItsMemory) {
  command_.on_gpus = true;
  command_.device_bytes = 1002;
  EXPECT_EQ(run(leave_steps({1, 1})).measured.peak_bytes, 1002);
  EXPECT_TRUE(run(leave_steps({1, 1})).measured.fits);
  const TrialEnd end = run(leave_steps({1, 1, 1}));
  EXPECT_FALSE(end.measured.fits);
  EXPECT_THAT(end.measured.why, HasSubstr("does not fit: held"));
}

TEST_F(Trial, ThatIsKilledDoesNotFit) {
  const TrialEnd end = run("kill -9 $$");
  EXPECT_FALSE(end.measured.fits);
  EXPECT_TRUE(end.measured.is_over);
  EXPECT_THAT(end.measured.why, HasSubstr("out of memory"));
  EXPECT_EQ(end.status, 128 + SIGKILL);
}

TEST_F(Trial, ThatSaysItLacksMemoryDoesNotFit) {
  const TrialEnd end = run("echo 'error: CUDA out of memory. Tried to allocate' >&2; exit 1");
  EXPECT_EQ(end.measured.why, "out of memory: CUDA out of memory. Tried to allocate");
}

TEST_F(Trial, ThatFailsOtherwiseSaysWhy) {
  const TrialEnd end = run("echo 'error: t.bin: is not there' >&2; echo; exit 4");
  EXPECT_EQ(end.measured.why, "failed: t.bin: is not there");
  EXPECT_EQ(end.status, 4);
}

TEST_F(Trial, IsToldThatItIsMeasured) {
  const std::string ask = "echo \"error: $FULLSHARD_MEASURED\" >&2; exit 1";
  EXPECT_EQ(run(ask).measured.why, "failed: steps");
  command_.times_phases = true;
  EXPECT_EQ(run(ask).measured.why, "failed: phases");
}

// Standard output stays free for what is measured.
TEST_F(Trial, ShowsItsLogWhereItIsAskedTo) {
  command_.shows_log = true;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const TrialEnd end = run("echo a result; echo a line >&2; " + leave_steps({1, 1}));
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "a line\n");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_TRUE(end.measured.fits);
}

TEST_F(Trial, IsEndedWhenTheBudgetIs) {
  command_.patience_s = 0.3;
  const TrialEnd end = run("exec sleep 60");
  EXPECT_FALSE(end.measured.is_over);
  EXPECT_EQ(end.interrupted_by, 0);
}

TEST_F(Trial, EndsWithTheSignalThatThisProcessGets) {
  const auto start = std::chrono::steady_clock::now();
  const TrialEnd end = run("kill -INT $PPID; exec sleep 60");
  EXPECT_EQ(end.interrupted_by, SIGINT);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(PrivateFolder, GoesWithAllInIt) {
  const testing::TemporaryFolder parent;
  std::string place;
  {
    const PrivateFolder folder(parent.path());
    place = folder.file("");
    ASSERT_EQ(::mkdir(folder.file("run").c_str(), 0700), 0);
    std::ofstream(folder.file("run/run.json")) << "{}";
    EXPECT_TRUE(testing::file_exists(place));
  }
  EXPECT_FALSE(testing::file_exists(place));
}

TEST(PrivateFolder, OfAKilledProcessIsRemoved) {
  const testing::TemporaryFolder parent;
  ASSERT_EQ(::mkdir(parent.file("trial-Ab12cd").c_str(), 0700), 0);
  std::ofstream(parent.file("trial-Ab12cd/rung.json")) << "{}";
  std::ofstream(parent.file("tune.json")) << "{}";
  remove_left_folders(parent.path());
  EXPECT_EQ(testing::entries_of(parent.path()), std::vector<std::string>{"tune.json"});
}

TEST(RandomTokens, AreOfTheVocabulary) {
  const testing::TemporaryFolder folder;
  for (const int64_t vocabulary : {50, 100'000}) {
    const std::string path = folder.file("random.tokens");
    write_random_tokens(path, 70'001, vocabulary);
    const data::TokenFile file(path);
    EXPECT_EQ(file.size(), 70'001);
    EXPECT_LT(file.layout().max_token, vocabulary);
    EXPECT_GT(file.layout().max_token, vocabulary / 2);
  }
}

}  // namespace
}  // namespace fullshard::tuning
