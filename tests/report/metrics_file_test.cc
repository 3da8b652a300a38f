// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/records/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "fullshard/base/error.h"
#include "tests/errors.h"
#include "tests/files.h"

namespace fullshard::report {
namespace {

using fullshard::testing::message_of;
using fullshard::testing::read_file;
using fullshard::testing::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StepRecord metrics_at_step(int64_t step) {
  return {.step = step, .loss = 1.0 / static_cast<double>(step)};
}

std::string lines_of(std::initializer_list<int64_t> steps) {
  std::string text;
  for (const int64_t step : steps) text += to_json_line(metrics_at_step(step)) + "\n";
  return text;
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::vector<int64_t> steps_in(const MetricsReading& reading) {
  std::vector<int64_t> steps;
  for (const StepRecord& record : reading.steps) steps.push_back(record.step);
  return steps;
}

TEST(MetricsWriter, HasEachLineInTheFileAtOnce) {
  TemporaryFolder folder;
  MetricsWriter writer(folder.file("metrics.jsonl"));
  writer.append(metrics_at_step(1));
  EXPECT_EQ(read_file(folder.file("metrics.jsonl")), lines_of({1}));
  writer.append(metrics_at_step(5));
  EXPECT_EQ(read_file(folder.file("metrics.jsonl")), lines_of({1, 5}));
}

TEST(MetricsWriter, StartsAFreshRunWithAnEmptyFile) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1, 2}) + "junk");
  MetricsWriter writer(folder.file("m"));
  EXPECT_EQ(read_file(folder.file("m")), "");
}

TEST(MetricsWriter, ResumesSoThatNoStepIsThereTwice) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1, 2, 3, 4}) + "{\"step\":5,");
  MetricsWriter writer(folder.file("m"), 2);
  EXPECT_EQ(read_file(folder.file("m")), lines_of({1, 2}));
  writer.append(metrics_at_step(3));
  EXPECT_EQ(read_file(folder.file("m")), lines_of({1, 2, 3}));
}

TEST(MetricsWriter, AddsUpTheLinesThatItKeeps) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1, 2, 3, 4}));
  EXPECT_EQ(MetricsWriter(folder.file("m"), 3).kept().num_steps(), 3);
  EXPECT_FALSE(MetricsWriter(folder.file("m")).kept().last().has_value());
}

TEST(ReadMetrics, CountsFromWhereTheRunOfTheLinesBegan) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({110}));
  EXPECT_EQ(read_metrics(folder.file("m"), 100).totals().num_steps(), 10);
  EXPECT_EQ(read_metrics(folder.file("m"), 110).totals().num_steps(), 1) << "an earlier part's";
  EXPECT_EQ(read_metrics(folder.file("m"), 0).totals().num_steps(), 110);
}

TEST(MetricsWriter, RemovesAHalfWrittenLineWhenItResumes) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1, 2}) + "{\"step\":3,");
  MetricsWriter writer(folder.file("m"), 9);
  EXPECT_EQ(read_file(folder.file("m")), lines_of({1, 2}));
}

TEST(MetricsWriter, RefusesToResumeOverALineThatItCannotRead) {
  TemporaryFolder folder;
  const std::string text = lines_of({1}) + "hello\n" + lines_of({2});
  put(folder.file("m"), text);
  EXPECT_EQ(message_of([&] { MetricsWriter writer(folder.file("m"), 2); }),
            folder.file("m") + ":2: is not valid JSON at column 1; remove the line");
  EXPECT_EQ(read_file(folder.file("m")), text);
}

TEST(MetricsWriter, RefusesAStepThatDoesNotRise) {
  TemporaryFolder folder;
  MetricsWriter writer(folder.file("m"), 4);
  EXPECT_EQ(message_of([&] { writer.append(metrics_at_step(4)); }),
            folder.file("m") + ": step 4 after step 4, expected steps that rise");
}

TEST(MetricsWriter, SaysThatTheDiskIsFull) {
  MetricsWriter writer("/dev/full");
  EXPECT_EQ(message_of([&] { writer.append(metrics_at_step(1)); }),
            "/dev/full: step 1 cannot be written: No space left on device; make room and resume "
            "from the last checkpoint");
}

// A limit on the size of files simulates a disk that takes only the first bytes of a line.
TEST(MetricsWriter, LeavesNoHalfALineOnAFullDisk) {
  TemporaryFolder folder;
  MetricsWriter writer(folder.file("m"));
  writer.append(metrics_at_step(1));
  rlimit before{};
  ::getrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_IGN);
  const rlimit narrow{lines_of({1}).size() + 20, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &narrow);
  const std::string problem = message_of([&] { writer.append(metrics_at_step(2)); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  EXPECT_THAT(problem, HasSubstr("step 2 cannot be written: File too large"));
  EXPECT_EQ(read_file(folder.file("m")), lines_of({1}));
  writer.append(metrics_at_step(2));
  EXPECT_EQ(read_file(folder.file("m")), lines_of({1, 2}));
}

TEST(MetricsWriter, NamesAFolderThatIsNotThere) {
  EXPECT_EQ(message_of([] { MetricsWriter writer("/nowhere/metrics.jsonl"); }),
            "/nowhere/metrics.jsonl: cannot be written: No such file or directory; name another "
            "folder with --output");
}

TEST(ReadMetrics, LeavesOutAHalfWrittenLine) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1, 2}) + "{\"step\":3,");
  const MetricsReading reading = read_metrics(folder.file("m"));
  EXPECT_THAT(steps_in(reading), ElementsAre(1, 2));
  EXPECT_TRUE(reading.is_half_written);
  EXPECT_THAT(reading.problems, ElementsAre());
}

TEST(ReadMetrics, ReadsOnPastBadLinesAndNamesThem) {
  TemporaryFolder folder;
  put(folder.file("m"), lines_of({1}) + "x\n" + lines_of({3, 2, 4}));
  const MetricsReading reading = read_metrics(folder.file("m"));
  EXPECT_THAT(steps_in(reading), ElementsAre(1, 3, 4));
  EXPECT_FALSE(reading.is_half_written);
  EXPECT_THAT(reading.problems,
              ElementsAre(folder.file("m") + ":2: is not valid JSON at column 1; remove the line",
                          folder.file("m") + ":4: step 2 after step 3, expected steps that rise"));
}

TEST(ReadMetrics, KeepsAFewProblemsAndCountsAll) {
  TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 500; ++i) text += "x\n";
  put(folder.file("m"), text);
  const MetricsReading reading = read_metrics(folder.file("m"));
  EXPECT_EQ(reading.problems.size(), 20u);
  EXPECT_EQ(reading.num_left_out, 500);
}

TEST(ReadMetrics, FindsNothingWhereNoFileIs) {
  EXPECT_TRUE(read_metrics("/nowhere/metrics.jsonl").steps.empty());
}

}  // namespace
}  // namespace fullshard::report
