// SPDX-License-Identifier: Apache-2.0
#include "fullshard/train/run/run_trace.h"

#include <gtest/gtest.h>

namespace fullshard::train {
namespace {

std::vector<report::TraceSpan> of_track(const std::vector<report::TraceSpan>& spans,
                                        const std::string& track) {
  std::vector<report::TraceSpan> found;
  for (const auto& span : spans) {
    if (span.track == track) found.push_back(span);
  }
  return found;
}

TEST(RunTrace, HasPhasesAndTheCallsUnderThem) {
  Recorder recorder(0);
  const double start = recorder.now();
  const auto first = recorder.issue(
      {.operation = Operation::all_gather, .group = "shards", .unit = "unit 'a'", .bytes = 64});
  const auto second = recorder.issue(
      {.operation = Operation::all_gather, .group = "shards", .unit = "unit 'b'", .bytes = 32});
  recorder.finish(first, 0);
  recorder.finish(second, 0);
  RunTrace trace;
  trace.add(7, {{"forward", start, start + 2}, {"backward", start + 2, start + 3}});
  const auto spans = trace.spans(recorder);
  ASSERT_EQ(of_track(spans, "phases").size(), 2u);
  EXPECT_EQ(of_track(spans, "phases")[0], (report::TraceSpan{"phases", "forward", "step 7", 0, 2}));
  // The second was issued before the first had finished.
  ASSERT_EQ(of_track(spans, "all_gather").size(), 1u);
  ASSERT_EQ(of_track(spans, "all_gather 2").size(), 1u);
  EXPECT_EQ(of_track(spans, "all_gather")[0].name, "all_gather of unit 'a'");
  EXPECT_EQ(of_track(spans, "all_gather")[0].moment, "shards, 64 bytes");
}

TEST(RunTrace, OfNoStepsIsEmpty) { EXPECT_TRUE(RunTrace().spans(Recorder(0)).empty()); }

TEST(RunTrace, LeavesOutCallsThatAreOlderThanItsSteps) {
  Recorder recorder(0);
  recorder.finish(recorder.issue({.operation = Operation::barrier}), 0);
  RunTrace trace;
  const double later = recorder.now() + 1;
  trace.add(1, {{"data", later, later + 1}});
  EXPECT_EQ(trace.spans(recorder).size(), 1u);
}

}  // namespace
}  // namespace fullshard::train
