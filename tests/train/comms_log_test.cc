// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/comms_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

void call(Recorder& recorder, Operation operation, int64_t bytes, int64_t moved,
          const std::string& label) {
  recorder.finish(
      recorder.issue({.operation = operation, .unit = label, .bytes = bytes, .moved = moved}), 0);
}

class CommsLogTable : public ::testing::Test {
 protected:
  CommsLogTable() {
    call(recorder_, Operation::all_gather, 1 << 20, 1 << 19, "unit 'a'");
    call(recorder_, Operation::all_gather, 1 << 20, 1 << 19, "unit 'b'");
    call(recorder_, Operation::all_gather, 1 << 10, 1 << 9, "unit 'a'");
    call(recorder_, Operation::barrier, 0, 0, "");
  }
  Recorder recorder_{0};
};

TEST_F(CommsLogTable, CountsCallsByOperationAndSize) {
  CommsLog log({.is_enabled = true});
  EXPECT_THAT(log.take(recorder_), IsEmpty());
  EXPECT_THAT(log.take(recorder_), IsEmpty());  // nothing is counted twice
  const std::string table = log.summary();
  EXPECT_THAT(table, MatchesRegex("Comm. Op +Message Size +Count +Total Latency\\(ms\\) +Avg "
                                  "Latency\\(ms\\) +tput_avg \\(Gbps\\) +busbw_avg "
                                  "\\(Gbps\\)\n"
                                  "all_gather\n"
                                  " +1 KiB +1 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+\n"
                                  " +1 MiB +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+\n"
                                  "barrier\n"
                                  " +0 B +1 +[0-9.]+ +[0-9.]+ +- +-\n"));
}

TEST_F(CommsLogTable, HasALineForEachCallWhereItIsVerbose) {
  CommsLog log({.is_enabled = true, .is_verbose = true, .names_callers = true});
  const auto lines = log.take(recorder_);
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_THAT(lines[1], MatchesRegex("comm op: all_gather of unit 'b' \\| time \\(ms\\): [0-9.]+ "
                                     "\\| msg size: 1 MiB \\| algbw \\(Gbps\\): [0-9.]+ \\| busbw "
                                     "\\(Gbps\\): [0-9.]+"));
  EXPECT_THAT(log.summary(), HasSubstr("all_gather of unit 'a'\n"));
}

TEST_F(CommsLogTable, LeavesOutOtherOperations) {
  CommsLog log({.is_enabled = true, .logs_all = false, .operations = {"barrier"}});
  log.take(recorder_);
  EXPECT_THAT(log.summary(), HasSubstr("barrier"));
  EXPECT_THAT(log.summary(), Not(HasSubstr("all_gather")));
}

TEST_F(CommsLogTable, IsEmptyUnlessAskedFor) {
  CommsLog log({});
  log.take(recorder_);
  EXPECT_EQ(log.summary(), "");
}

TEST(CommsLog, SaysThatTheRecorderHadDroppedCalls) {
  Recorder recorder(0, 2);
  for (int i = 0; i < 5; ++i) call(recorder, Operation::barrier, 0, 0, "");
  CommsLog log({.is_enabled = true});
  log.take(recorder);
  EXPECT_THAT(log.summary(), HasSubstr("(some calls are not counted"));
}

}  // namespace
}  // namespace fullshard::train
