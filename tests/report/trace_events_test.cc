// SPDX-License-Identifier: Apache-2.0
#include "fullshard/report/trace_events.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fullshard::report {
namespace {

TEST(TraceEvents, AreWhatPerfettoReads) {
  const auto trace = nlohmann::json::parse(
      trace_events({{"all_gather", "all_gather of unit 'a'", "shards", 0.5, 0.75},
                    {"phases", "forward", "", 0.25, 1}},
                   "phases"));
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  std::vector<nlohmann::json> names, spans;
  for (const auto& event : trace["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
    if (event["name"] == "thread_name") names.push_back(event);
  }
  ASSERT_EQ(names.size(), 2u);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0]["ts"], 500000.0);
  EXPECT_EQ(spans[0]["dur"], 250000.0);
  EXPECT_EQ(spans[0]["args"]["moment"], "shards");
  EXPECT_EQ(spans[0]["tid"], 1);
  EXPECT_EQ(spans[1]["tid"], 0);
  EXPECT_FALSE(spans[1].contains("args"));
}

}  // namespace
}  // namespace fullshard::report
