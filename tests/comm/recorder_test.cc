// SPDX-License-Identifier: Apache-2.0
#include "fullshard/comm/recorder.h"

#include <gtest/gtest.h>

namespace fullshard::comm {
namespace {

TEST(Recorder, AddsUpCallsOfEachOperation) {
  Recorder recorder(3);
  recorder.issue({.operation = Operation::all_gather, .bytes = 100, .moved = 50});
  recorder.issue({.operation = Operation::all_gather, .bytes = 300, .moved = 150});
  recorder.issue({.operation = Operation::broadcast, .bytes = 8, .moved = 4});
  const OperationTotals totals = recorder.totals(Operation::all_gather);
  EXPECT_EQ(totals.calls, 2);
  EXPECT_EQ(totals.bytes, 400);
  EXPECT_EQ(totals.moved, 200);
  EXPECT_EQ(totals.largest, 300);
  EXPECT_EQ(recorder.moved(), 204);
  EXPECT_EQ(recorder.totals(Operation::barrier).calls, 0);
}

TEST(Recorder, CountsWhatIsInFlight) {
  Recorder recorder(0);
  const uint64_t first = recorder.issue({});
  const uint64_t second = recorder.issue({});
  EXPECT_EQ(recorder.in_flight(), 2);
  recorder.finish(second, 0.25);
  EXPECT_EQ(recorder.in_flight(), 1);
  recorder.finish(first, 0.5);
  EXPECT_EQ(recorder.in_flight(), 0);
  EXPECT_DOUBLE_EQ(recorder.totals(Operation::barrier).waited, 0.75);
}

TEST(Recorder, KeepsTheNewestRecordsOldestFirst) {
  Recorder recorder(5, 2);
  const uint64_t dropped = recorder.issue({.sequence = 1});
  recorder.issue({.sequence = 2});
  const uint64_t last = recorder.issue({.sequence = 3});
  recorder.finish(dropped, 0);  // forgotten already: no harm
  recorder.finish(last, 0);
  const auto records = recorder.records();
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sequence, 2u);
  EXPECT_EQ(records[0].rank, 5);
  EXPECT_EQ(records[0].finished, 0);
  EXPECT_EQ(records[1].sequence, 3u);
  EXPECT_GE(records[1].finished, records[1].issued);
}

TEST(Recorder, TellsTheLastAct) {
  Recorder recorder(0);
  EXPECT_EQ(recorder.last_act(), "none yet");
  const uint64_t ticket = recorder.issue(
      {.sequence = 17, .operation = Operation::all_gather, .group = "world", .unit = "block 3"});
  EXPECT_EQ(recorder.last_act(), "all_gather of block 3 (group world, sequence 17), in flight");
  recorder.finish(ticket, 0);
  EXPECT_EQ(recorder.last_act(), "all_gather of block 3 (group world, sequence 17), finished");
  recorder.issue({.sequence = 18, .group = "shards"});
  EXPECT_EQ(recorder.last_act(), "barrier (group shards, sequence 18), in flight");
}

TEST(Recorder, ResetForgetsTotalsButNotWhatIsInFlight) {
  Recorder recorder(0);
  recorder.issue({.bytes = 7, .moved = 7});
  recorder.reset_totals();
  EXPECT_EQ(recorder.moved(), 0);
  EXPECT_EQ(recorder.in_flight(), 1);
  EXPECT_EQ(recorder.records().size(), 1u);
}

}  // namespace
}  // namespace fullshard::comm
